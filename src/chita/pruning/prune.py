"""chita.prune: one-shot pruning in one stage (CHITA) or many (CHITA++, algorithm 1)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from chita.errors import ChitaError
from chita.model.forward import convolution_trials
from chita.model.losses import Loss
from chita.pruning.config import PruneConfig, Ridge
from chita.pruning.floor import Floor, sparsity_to_reach
from chita.pruning.result import PruneResult
from chita.pruning.run import Run
from chita.solver.constraints.pattern import read_sparsity
from chita.solver.ranks import joined_ranks


def prune(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    sparsity: float | str | None = None,
    loss: Loss | str | None = None,
    method: str = "auto",
    solver: str | None = None,
    samples: int | None = None,
    batch: int | None = None,
    ridge: Ridge = "auto",
    first_order: bool | None = None,
    stages: int | None = None,
    schedule: str | None = None,
    start: float = 0.2,
    hold: float = 0.0,
    iterations: int | None = None,
    continuation: int = 0,
    block_size: int | None = None,
    block_sweeps: int = 0,
    metric: str | None = None,
    drop_dead: bool | None = None,
    max_loss_increase: float | None = None,
    min_accuracy: float | None = None,
    pattern: str | None = None,
    strict: bool = False,
    include: Sequence[str] | str | None = None,
    exclude: Sequence[str] | str | None = None,
    allocation: str | Mapping[str, float] = "global",
    at_least: Mapping[str, float] | None = None,
    at_most: Mapping[str, float] | None = None,
    inplace: bool = True,
    seed: int = 0,
    memory: int | str | None = None,
    storage: str = "float32",
    progress: bool = True,
    checkpoints: str | Path | None = None,
    resume: bool = False,
    held_out: Iterable[Any] | None = None,
) -> PruneResult:
    """Set a share of a model's weights to zero and move the rest so that it still works.

    The model changes only when a stage has succeeded: an error or an interruption leaves it with
    the weights of the last finished stage. In a process group of torch.distributed, all ranks must
    call it, with the same model and data: they share the work, and all get the result.

    Other methods leave all but the prunable weights alone. The default, "auto", may end by changing
    biases and the statistics of batch norm, each where that lowers the held-out loss and keeps to
    the floor; `PruneResult.repairs` says what was done.

    Args:
        model: any trained module; the device is the model's.
        batches: calibration data, a list, a DataLoader or any other re-iterable of
            (inputs, targets) or of dicts (then the model's own `.loss` is used). Inputs that are
            a dict are the model's keywords.
        sparsity: the share of the prunable weights to set to zero, in [0, 1); or "N:M", such as
            "2:4", to keep exactly N of every M neighbours along the inputs of a layer. With a floor
            it is the most that is tried, 0.99 by default, or what pattern and limits allow. 0 keeps
            all weights, which the stages still move.
        loss: loss(outputs, targets) -> scalar; the cross-entropy by default. "distill" needs no
            targets: the network stays close to what it says before pruning. Batches are then
            inputs (a tensor or a dict), or tuples that start with them; a tensor or logits that
            comes out is taken for classes, a last hidden state for features. "distill-mse" takes
            whatever comes out for features, such as an embedding or a regression.
        method: "auto", CHITA++ in which the loss on held-out samples chooses what each stage does;
            "chita++", "chita-bso" or "chita-cd"; "magnitude" of all weights or, as
            "magnitude-uniform", of each layer; "obd", "obs", "l-obs", "woodfisher", "woodtaylor",
            "m-fac" or "cbs". Of these last seven only "woodtaylor" uses the first-order term.
        solver: the single-stage method inside CHITA++, "bso" (default) or "cd".
        samples: n, the rows of A; by default what the data give, at most 1000.
        batch: m, the samples averaged into one row, 16 by default, and fewer for "auto" where the
            data are few; the given batches are cut up or joined to m.
        ridge: lambda, or "auto" to pick it by the loss on held-out calibration samples.
        first_order: whether the model of the loss has its first-order term, scaled by 1/m.
        stages: f; 60 for "auto" (at most) and CHITA++, 1 for the others by default.
        schedule: "exponential" (each stage covers half of the remaining way, as in the paper's
            experiments), "geometric" (each stage divides the density by the same number),
            "linear", "constant" or "polynomial"; by default the stages of "auto" adapt, and those
            of the others are polynomial.
        start: the sparsity of the first stage.
        hold: the last share of the stages that stays at the target.
        iterations: IHT updates at most a stage; 50 for CHITA-CD, 5 for CHITA-BSO and CHITA++ by
            default. Rounds of swaps for CBS, 8 by default.
        continuation: shrinking supports on the way to each stage's first one; 0 starts from the
            largest weights, as the paper does; some 30 help a single stage at high sparsity.
        block_size: solve in blocks of at most this size, cut from the layers (algorithm 6).
        block_sweeps: 0 solves the blocks apart, as the paper does; otherwise they then take turns
            on the problem of all weights, in so many rounds at most. One does most of it.
        metric: what makes a weight large: "plain", its size; "fisher", its saliency; "layer" or
            "channel", its size among those of its layer or output channel; "lamp"; or "auto", the
            one of "plain", "fisher" and "lamp" with the least held-out loss. The default of method
            "auto" is "auto", that of the others "plain".
        drop_dead: whether to remove first the weights that no sample depends on, those of columns
            of A that are zero; they stay only where nothing else can fill the support. A layer of
            such columns alone is exempt. By default the CHITA methods and "auto" do, and the others
            do not.
        max_loss_increase: a floor for "auto": the sparsest network is searched for whose held-out
            loss exceeds that of the dense one by no more.
        min_accuracy: another one: the least accuracy on held-out samples, in percent.
        pattern: "4x1" keeps or drops tiles of 4 outputs by 1 input whole, whatever the sparsity.
            "N:M" with a sparsity in numbers stops on the way to N:M, where every group keeps N at
            least. A convolution's inputs are its kernel's positions times its channels, the
            channels of a position side by side.
        strict: whether a weight that the pattern does not divide is an error; it is left dense
            with a warning otherwise.
        include: glob pattern(s) of parameter names to prune, in place of the weights of Linear
            and convolution layers and of attention projections, none of them shared with an
            embedding.
        exclude: glob pattern(s) of parameter names to leave alone.
        allocation: how the zeros fall on the layers: "global", wherever the method wants them;
            "uniform", the same sparsity for each; "erk", small layers denser; or a dict of glob
            patterns of parameter names to the sparsities of these layers, the last that matches
            counting, the others sharing what is left. On the way there, stages prune each layer in
            proportion.
        at_least: the least sparsity of layers, by glob pattern.
        at_most: the highest sparsity of layers, by glob pattern; 0 keeps a layer dense, and its
            weights count for `sparsity`, as those of `exclude` do not.
        inplace: prune the model itself, or a copy.
        seed: batches given as a list are read in an order drawn from it, and CBS draws its
            starts from it.
        memory: the most that the process may take, such as "8GB", or bytes; on a GPU, what it may
            take there. A is then held, written to a temporary file (in TMPDIR) or computed in
            several passes, whichever fits and takes the least time. The outcome is the same but
            for rounding.
        storage: what A is stored in, "float32" (float64 if the model is), "bfloat16" or "float16";
            products are computed in full precision.
        progress: show a bar.
        checkpoints: a folder for the last finished stage, written after each.
        resume: go on after the stage found there, if any. The arguments must be the same, and the
            model as it was at the start. On a CPU the outcome is then that of an undisturbed run,
            bit for bit, unless the data come in another order, as a DataLoader may draw one.
        held_out: samples to choose by and to measure on, as `batches` are; what is used of them
            never enters A. By default a part of `batches` is set aside, and which part depends on
            the content of the samples alone: a loader may shuffle. Give it where `batches` augments
            its samples at random, which makes them new at every pass; otherwise such samples are
            read once and kept.

    Raises:
        ChitaError: an argument, the model or the data do not fit; the message says how.
    """
    target = sparsity_to_reach(sparsity, Floor(max_loss_increase, min_accuracy))
    share, pattern = read_sparsity(target, pattern)
    config = PruneConfig(
        sparsity=share,
        loss=None if callable(loss) else loss,
        method=method,
        solver=solver,
        samples=samples,
        batch=batch,
        ridge=ridge,
        first_order=first_order,
        stages=stages,
        schedule=schedule,
        start=start,
        hold=hold,
        iterations=iterations,
        continuation=continuation,
        block_size=block_size,
        block_sweeps=block_sweeps,
        metric=metric,
        drop_dead=drop_dead,
        max_loss_increase=max_loss_increase,
        min_accuracy=min_accuracy,
        pattern=pattern,
        strict=strict,
        include=include,
        exclude=exclude,
        allocation=allocation,
        at_least=at_least,
        at_most=at_most,
        seed=seed,
        memory=memory,
        storage=storage,
    )
    if resume and checkpoints is None:
        raise ChitaError("resume=True needs checkpoints, the folder of the run to go on with")
    model = model if inplace else copy.deepcopy(model)
    with joined_ranks() as ranks, convolution_trials(False):
        run = Run(model, batches, loss if callable(loss) else None, config, ranks, held_out)
        if checkpoints is not None:
            run.keep_stages(Path(checkpoints), resume=resume)
        return run.all_stages(progress)
