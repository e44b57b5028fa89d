"""The options of `chita.prune` on its goal, method, stages and data, each declared once.

`support.py` has the options on patterns and layers, and `run.py` those on the seed, memory and
ranks. `PruneConfig` joins them, and checks what concerns several of them. The keywords of
`chita.prune`, the options of `chita prune` and their documentation follow from the declarations,
which `declaration.py` explains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from chita.errors import (
    is_count,
    is_flag,
    is_natural,
    is_not_negative,
    is_percentage,
    is_share,
)
from chita.methods import BUILT_IN, get_method
from chita.model.named_losses import LOSSES, check_loss
from chita.pruning.budget import WHAT, parse_budget
from chita.pruning.options.declaration import OPTION, Option, either, must_be, one_of, option
from chita.pruning.options.text import (
    AUTO,
    read_budget,
    read_ridge,
    read_sparsity_text,
)
from chita.pruning.schedule import MESHES, check_sparsity
from chita.pruning.stage_problem import METRICS

BATCH = 16  # m by default, as for the paper's MobileNetV1
BALANCED = "balanced"

share = must_be(is_share, "a number in [0, 1)")
count = must_be(is_count, "an integer of at least 1")
natural = must_be(is_natural, "an integer of at least 0")
flag = must_be(is_flag, "True, False or None")
MOST_ROUNDS = 10_000  # of stages, which are planned before the run, and of shrinking supports
LARGEST_RIDGE = 1e100  # times the samples it is finite; weights stay at w0 from far less on


@dataclass(frozen=True)
class PruneOptions:
    """The options on the goal, the method, the stages and the data."""

    sparsity: float = field(
        metadata={
            OPTION: Option(
                "Share of the prunable weights to set to zero, in [0, 1), or a pattern N:M such "
                "as 2:4. With `max_loss_increase` or `min_accuracy` it is the highest sparsity to "
                "try, 0.99 by default.",
                check_sparsity,
                panel="Goal",
                details="N:M keeps exactly N of every M neighbouring weights along the inputs of "
                "a layer; for PruneConfig, write it as a number and a `pattern`. A sparsity of 0 "
                "keeps all weights, but the stages, and the training after them, still change "
                "their values.",
                read=read_sparsity_text,
            )
        }
    )
    loss: str | None = option(
        None,
        "Loss that pruning preserves: the cross-entropy by default, or the name of another loss "
        "of torch, such as mse or bce_with_logits. 'distill' and 'distill-mse' compare with the "
        "outputs of the dense network and need no labels.",
        check_loss,
        panel="Method",
        details=f"The names are {', '.join(LOSSES)}. `chita.prune` also accepts a module of "
        "torch.nn, such as nn.CrossEntropyLoss(label_smoothing=0.1), and a function "
        "loss(outputs, targets) -> scalar. If the batches are inputs alone, the default is "
        "'distill'. For 'distill' and 'distill-mse' a batch is the inputs (a tensor or a dict) or "
        "a tuple that starts with them. 'distill' treats a tensor or logits as class scores and a "
        "last hidden state as features; 'distill-mse' treats every output as features, such as an "
        "embedding or a regression.",
    )
    method: str = option(
        AUTO,
        f"Pruning method, one of {', '.join(BUILT_IN)}, or a registered one.",
        lambda _, value: get_method(value),
        panel="Method",
        details="'auto' chooses a mask or a CHITA solve for each stage by the loss on held-out "
        "samples, and trains after it; with recover=False it is CHITA++ that chooses the form of "
        "each stage problem. For a language model it is 'chita-layer', with training. "
        "'magnitude-uniform' applies magnitude pruning to each layer "
        "separately, and 'lamp' keeps the weights with the largest LAMP scores. 'chita-layer', "
        "'l-obs', 'wanda', 'ria', 'sparsegpt' and 'alps' use the inputs of each layer, and "
        "'chita-both' uses them together with gradients. Of the methods that are not CHITA's, only "
        "'woodtaylor' uses the first-order term.",
    )
    solver: str | None = option(
        None,
        "Solver inside the method: bso (the default) or cd for chita++, admm (the default) or iht "
        "for chita-layer.",
        must_be(lambda value: isinstance(value, str), "the name of a solver"),
        panel="Method",
    )
    recover: bool | None = option(
        None,
        "Train the remaining weights after every stage to give the outputs of the dense network, "
        "without labels. By default the method auto does so, and the others do not.",
        flag,
        panel="Method",
        details="All parameters that are not frozen are trained, on the calibration samples. "
        "recover=False gives pruning without training, as the paper defines it.",
    )
    budget: float | str = option(
        BALANCED,
        f"How long a run with `recover` may take: {WHAT}.",
        parse_budget,
        panel="Resources",
        details="The names limit the training steps as well as the time; 'N steps' limits only "
        "these, so that the result does not depend on the speed of the machine.",
        read=read_budget,
    )
    samples: int | None = option(
        None,
        "Rows n of A, one per mini-batch of gradients; by default all the data allow, up to 1000, "
        "for the method auto up to 500 of fewer than 16,000 samples, and with `recover` up to 400 "
        "(128 or 1000 by the budget).",
        count,
        panel="Data",
    )
    batch: int | None = option(
        None,
        f"Number m of samples averaged into one row of A; {BATCH} by default, and fewer for "
        "the method auto if there are few samples, or with `recover`.",
        count,
        panel="Data",
        details="The given batches are split or joined to this size.",
    )
    ridge: float | Literal["auto"] = option(
        "auto",
        "Ridge penalty lambda; 'auto' chooses it by the loss on held-out samples, except for "
        "chita-layer, sparsegpt and alps, whose default is 0.01.",
        must_be(
            either((AUTO,), lambda value: is_not_negative(value) and value <= LARGEST_RIDGE),
            f"'auto' or a number from 0 to {LARGEST_RIDGE:g}",
        ),
        panel="Method",
        details="For chita-layer, sparsegpt and alps it is relative to the mean square of the "
        "inputs of each layer, and for chita-both to the mean curvature. wanda and ria have none.",
        read=read_ridge,
    )
    layer_share: float | Literal["auto"] = option(
        "auto",
        "For chita-both, the share t of the layers' inputs in the curvature: 1 for the inputs "
        "alone, 0 for gradients alone, 'auto' for the one with the smallest held-out loss.",
        must_be(
            either((AUTO,), lambda value: is_not_negative(value) and value <= 1),
            "'auto' or a number from 0 to 1",
        ),
        panel="Method",
        read=read_ridge,
    )
    first_order: bool | None = option(
        None,
        "Use the first-order term, scaled by 1/m, in the model of the loss. By default the "
        "method auto tries both, chita-both leaves it out, and the other methods use it if they "
        "have one.",
        flag,
        panel="Method",
    )
    stages: int | None = option(
        None,
        "Number f of stages; by default 60 for auto (at most) and chita++, 1 for the others. With "
        "`recover` the budget determines it: at most 16.",
        must_be(
            lambda value: is_count(value) and value <= MOST_ROUNDS,
            f"an integer from 1 to {MOST_ROUNDS}",
        ),
        panel="Stages",
    )
    schedule: str | None = option(
        None,
        f"Sparsities of the stages, one of {', '.join(MESHES)}. By default the method auto "
        "adapts them, and the other methods use polynomial.",
        one_of(MESHES),
        panel="Stages",
        details="'exponential' covers half of the remaining distance in each stage, as in the "
        "paper's experiments; 'geometric' divides the density by the same number in each.",
    )
    start: float = option(
        0.2,
        "Sparsity of the first stage. The method auto starts later if that costs little.",
        share,
        panel="Stages",
    )
    hold: float = option(
        0.0,
        "Share of the stages, at the end, that stay at the final sparsity.",
        share,
        panel="Stages",
    )
    iterations: int | None = option(
        None,
        "Highest number of IHT updates per stage: by default 50 for chita-cd, 5 for chita-bso "
        "and chita++. For cbs, the rounds of swaps: 8 by default.",
        natural,
        panel="Method",
    )
    continuation: int = option(
        0,
        "Number of intermediate, shrinking supports before the first support of a stage.",
        must_be(
            lambda value: is_natural(value) and value <= MOST_ROUNDS,
            f"an integer from 0 to {MOST_ROUNDS}",
        ),
        panel="Method",
        details="0 starts from the largest weights, as in the paper; about 30 help a single "
        "stage at high sparsity.",
    )
    block_size: int | None = option(
        None,
        "Largest size of the blocks to solve in (algorithm 6); by default auto decides, and "
        "the other methods use no blocks.",
        count,
        panel="Method",
        details="Blocks do not cross layers.",
    )
    block_sweeps: int = option(
        0,
        "Highest number of rounds in which the blocks are solved in turn on the problem of all "
        "weights; 0 solves them independently, as in the paper.",
        natural,
        panel="Method",
        details="One round has most of the effect.",
    )
    metric: str | None = option(
        None,
        f"How the size of a weight is measured: {', '.join(METRICS)}; or auto, the one of "
        "plain, fisher and lamp with the smallest held-out loss. By default auto for the "
        "method auto, and plain for the others.",
        one_of((AUTO, *METRICS)),
        panel="Method",
        details="'plain' is the absolute value; 'fisher' the saliency; 'layer' and 'channel' "
        "the absolute value relative to the layer or the output channel; 'lamp' the LAMP score.",
    )
    drop_dead: bool | None = option(
        None,
        "Remove first the weights that no sample depends on. By default auto and the CHITA "
        "methods do so, and the others do not.",
        flag,
        panel="Method",
        details="These weights have a column of zeros in A. They are kept only if the support "
        "cannot be filled otherwise, or if all columns of their layer are zero.",
    )
    max_loss_increase: float | None = option(
        None,
        "Find the sparsest network whose held-out loss exceeds that of the dense network by at "
        "most this much; for the method auto.",
        must_be(is_not_negative, "a finite number of at least 0"),
        panel="Goal",
    )
    min_accuracy: float | None = option(
        None,
        "Find the sparsest network with at least this accuracy on held-out samples, in "
        "percent; for the method auto.",
        must_be(is_percentage, "in percent: above 1, and at most 100"),
        panel="Goal",
    )
