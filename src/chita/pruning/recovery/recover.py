"""chita.recover: train what is left of a pruned network, with its zeros held."""

from __future__ import annotations

import glob
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError, is_seed, require
from chita.model.batch import Batch
from chita.model.distill import Dense, InputStream
from chita.model.forward import answer_of, evaluating
from chita.model.losses import Loss
from chita.model.sample_stream import SampleStream
from chita.model.weights import Weights, apply_masks, check_masks, check_model
from chita.pruning.budget import SPARE, Budget, Costs, parse_budget
from chita.pruning.held_out import HeldOut
from chita.pruning.options import DISTILL_MSE, LOSSES
from chita.pruning.recovery.objective import Lesson, distillation, own_loss
from chita.pruning.recovery.pool import first_batches
from chita.pruning.recovery.rate import SLOWEST
from chita.pruning.recovery.recovery import Recovery
from chita.pruning.recovery.training import RecoveryTraining
from chita.report.progress import stage_bar
from chita.solver.ranks import Ranks, joined_ranks

logger = logging.getLogger(__name__)

HELD_OUT_SHARE = 0.15
MOST_HELD_OUT = 1000


@dataclass(frozen=True)
class RecoverResult:
    """The outcome of `chita.recover`.

    Attributes:
        model: the model, which was trained in place.
        loss_before: the loss on held-out samples before the training.
        loss_after: the loss of the returned model.
        kept: whether the training lowered the loss; otherwise it was undone.
        steps: the number of training steps.
        samples: the number of samples that were trained on.
        rate: the relative rate that the range test found.
        seconds: the time of the call.
    """

    model: nn.Module = field(repr=False)
    loss_before: float
    loss_after: float
    kept: bool
    steps: int
    samples: int
    rate: float
    seconds: float


def recover(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    masks: Mapping[str, Tensor] | None = None,
    teacher: nn.Module | None = None,
    loss: Loss | str = "distill",
    budget: float | str = "balanced",
    seed: int = 0,
    progress: bool = True,
) -> RecoverResult:
    """Train a pruned network to give the outputs of the dense one; pruned weights stay zero.

    All parameters that require gradients are trained, and the statistics of batch norm with them.
    The rate of the training comes from a short test on held-out samples, and the same samples guard
    the result: if their loss does not fall, the model is restored. In a process group of
    torch.distributed, all ranks must call this function with the same model and data.

    Args:
        model: A pruned module; it is trained in place.
        batches: Calibration data, as for `chita.prune`. Without `loss`, labels are not used, and a
            batch may consist of inputs alone.
        masks: Parameter name -> bool tensor, True where a weight is kept, such as the `masks` of a
            `PruneResult`. By default the prunable weights that are zero stay zero.
        teacher: The dense network, or any network whose outputs have the same form.
        loss: "distill" compares outputs with those of the teacher, as classes or as features, as in
            `chita.prune`; "distill-mse" compares them as features. A function loss(outputs,
            targets) -> scalar is trained on instead of a teacher.
        budget: How long to train: a number of seconds, "fast", "balanced" or "best", or
            "N steps".
        seed: The random seed of the order of the samples.
        progress: Show a progress bar.

    Returns:
        The losses before and after, and the effort.

    Raises:
        ChitaError: An argument, the model or the data are invalid; the message names the cause.
    """
    began = time.perf_counter()
    check_model(model)
    require("seed", seed, is_seed, "an integer from 0 to 2**64 - 1")
    limits = parse_budget("budget", budget)
    if (teacher is None) != callable(loss) or not (callable(loss) or loss in LOSSES):
        raise ChitaError(
            "give either teacher, the dense network to imitate, with loss one of "
            f"{list(LOSSES)}, or loss, a function of outputs and targets; got "
            f"teacher={type(teacher).__name__} and loss={loss!r}"
        )
    weights, kept = _supported(model, masks)
    with joined_ranks() as ranks:
        recovery, lesson = _prepare(model, weights, batches, teacher, loss, limits, seed, ranks)
        apply_masks(model, masks or {})
        with stage_bar(show=progress) as bar:
            bar.describe("range test")
            rate = recovery.find_rate(weights.vector())
            if rate is None:
                raise ChitaError(
                    f"training with a relative rate of {SLOWEST:g} gives a held-out loss that is "
                    "not finite; check the data and the model"
                )
            costs = Costs(recovery.step_seconds, recovery.check_seconds, stages=1)
            left = SPARE * limits.seconds - (time.perf_counter() - began)
            useful = limits.useful_steps(lesson.pool.samples, lesson.pool.batch)
            # The ranks measure different times, but must take the same steps.
            steps = ranks.from_first(lambda: min(useful, costs.affordable_steps(left)))
            if steps < 1:
                raise ChitaError(
                    f"budget={budget!r} is too small: no time is left after the range test, and a "
                    f"training step takes {costs.step:.2g} s; give more time, or 'N steps'"
                )
            bar.begin(steps)
            bar.describe("recovery")
            found = recovery.run(kept, steps=steps, rate=rate, key=0, progress=bar.advance)
    if not found.kept:
        logger.warning("training does not lower the held-out loss: the model is unchanged")
    return RecoverResult(
        model=model,
        loss_before=found.before.mean,
        loss_after=found.after.mean,
        kept=found.kept,
        steps=steps,
        samples=lesson.pool.samples,
        rate=rate,
        seconds=time.perf_counter() - began,
    )


def _supported(model: nn.Module, masks: Mapping[str, Tensor] | None) -> tuple[Weights, Tensor]:
    """Return the weights that must keep their zeros, p in total, and their support, (p,) bool."""
    given = {} if masks is None else dict(check_masks(model, masks))
    if not given:
        weights = Weights(model)
        return weights, weights.vector() != 0
    weights = Weights(model, include=[glob.escape(name) for name in masks or ()])
    return weights, torch.cat([given[weight.parameter].reshape(-1) for weight in weights])


def _prepare(
    model: nn.Module,
    weights: Weights,
    batches: Iterable[Any],
    teacher: nn.Module | None,
    loss: Loss | str,
    limits: Budget,
    seed: int,
    ranks: Ranks,
) -> tuple[Recovery, Lesson]:
    """Divide the samples, and return the recovery and what it trains on."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ChitaError(
            "model has no parameter that requires gradients, so there is nothing to train; call "
            "model.requires_grad_(True)"
        )
    stream: SampleStream = SampleStream(batches, seed)
    held_out_loss = own = loss if callable(loss) else None
    dense: Dense | None = None
    if teacher is not None:
        stream = inputs = InputStream(batches, seed)
        dense = inputs.dense = _teacher(teacher, model, inputs.peek(), squares=loss == DISTILL_MSE)
        held_out_loss = dense.divergence
    have = stream.count(int(MOST_HELD_OUT / HELD_OUT_SHARE))
    if have < 2:
        raise ChitaError(f"batches must contain at least 2 samples, got {have}")
    at_once = stream.at_once()
    count = min(MOST_HELD_OUT, max(1, int(HELD_OUT_SHARE * have)))
    (held,) = stream.hold_out((count,), at_once, rest=have - count)
    if not (held and stream.count(1)):
        raise ChitaError(
            f"batches contain {have} samples of equal content: none can be held out to guard the "
            "training; give more data"
        )
    first, samples = stream.sample, first_batches(stream.one_pass(), limits.samples)
    assert first is not None
    if dense is None:
        lesson = own_loss(samples, own, at_once=at_once, place=weights.device)
    else:
        lesson = distillation(dense, samples, first, at_once=at_once, place=weights.device)
    trained = [w.parameter for w in weights if w.parameter.requires_grad]
    training = RecoveryTraining(model, trained, lesson, ranks=ranks, seed=seed)
    held_out = HeldOut(model, weights, held, held_out_loss, ranks)
    return Recovery(model, weights, training, held_out.losses_now), lesson


def _teacher(teacher: nn.Module, model: nn.Module, first: Batch | None, *, squares: bool) -> Dense:
    """Return the teacher; its answers must have the form of the model's."""
    check_model(teacher)
    if first is None:
        raise ChitaError("batches contain no samples")
    dense = Dense(teacher, first, 0, squares=squares)
    sample = first[:1]
    with torch.no_grad(), evaluating(model):
        own = answer_of(sample.to(next(model.parameters()).device).outputs(model))
    wanted = dense.answers(sample).content[1]["answer"]  # type: ignore[index]
    if own.shape != wanted.shape:
        raise ChitaError(
            f"teacher gives outputs of shape {tuple(wanted.shape)} and model of shape "
            f"{tuple(own.shape)}: they must be the same; give the network before pruning as teacher"
        )
    return dense
