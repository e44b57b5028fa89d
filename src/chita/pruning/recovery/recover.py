"""chita.recover: train what is left of a pruned network, with its zeros held."""

from __future__ import annotations

import glob
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError, is_seed, require, require_bools
from chita.model.checks import check_model, check_module
from chita.model.distill import Dense, InputStream
from chita.model.forward import answer_of, evaluating, unwrapped
from chita.model.losses import Loss, ignored_label
from chita.model.masks import apply_masks, check_masks
from chita.model.named_losses import DISTILL_MSE, DISTILLED, resolve_loss
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import Batch, first_samples
from chita.model.samples.stream import SampleStream
from chita.model.ties import merged_ties
from chita.model.weights import Weights
from chita.pruning.budget import Budget, Costs, parse_budget
from chita.pruning.forecast import Forecast
from chita.pruning.held_out import HeldOut
from chita.pruning.rank_agreement import (
    agree_on_held_out,
    agree_on_masks,
    agree_on_model,
    agree_on_options,
)
from chita.pruning.recovery.broken_samples import check_samples
from chita.pruning.recovery.guarded_training import GuardedTraining
from chita.pruning.recovery.objective import RecoveryTask, distillation, own_loss
from chita.pruning.recovery.pool import SamplePool
from chita.pruning.recovery.range_test import SLOWEST, steps_of_test
from chita.pruning.recovery.result import RecoverResult
from chita.pruning.recovery.training import RecoveryTraining
from chita.report.progress import run_bar
from chita.solver.precision import own_precision
from chita.solver.ranks import Ranks, joined_ranks

logger = logging.getLogger(__name__)

HELD_OUT_SHARE = 0.15
MOST_HELD_OUT = 1000


def recover(
    model: nn.Module,
    batches: Any,
    *,
    masks: Mapping[str, Tensor] | None = None,
    teacher: nn.Module | None = None,
    loss: Loss | str = "distill",
    budget: float | str = "balanced",
    seed: int = 0,
    progress: bool = True,
    sync: bool = False,
) -> RecoverResult:
    """Train a pruned network to give the outputs of the dense one; pruned weights stay zero.

    All parameters that require gradients are trained, and the statistics of batch norm with them.
    The rate of the training comes from a short test on held-out samples, and the same samples guard
    the result: if their loss does not fall, the model is restored. In a process group of
    torch.distributed, all ranks must call this function with the same model and data.

    Args:
        model: A pruned module; it is trained in place.
        batches: Calibration data in any form that `chita.prune` accepts. Without `loss`, labels are
            not used, and a batch may consist of inputs alone.
        masks: Parameter name -> bool tensor, True where a weight is kept, such as the `masks` of a
            `PruneResult`. By default the prunable weights that are zero stay zero.
        teacher: The dense network, or any network whose outputs have the same form.
        loss: "distill" compares outputs with those of the teacher, as classes or as features, as in
            `chita.prune`; "distill-mse" compares them as features. Another name, such as
            "cross_entropy", a loss of torch.nn, or a function loss(outputs, targets) -> scalar is
            trained on instead of a teacher.
        budget: How long to train: a number of seconds, "fast", "balanced" or "best", or
            "N steps".
        seed: The random seed of the order of the samples.
        progress: Show a progress bar.
        sync: On several ranks, take the parameters, buffers and held-out samples of rank 0. By
            default, ranks that differ in them raise an error.

    Returns:
        The losses before and after, and the effort.

    Raises:
        ChitaError: An argument, the model or the data are invalid; the message names the cause.
    """
    began = time.perf_counter()
    check_model(model)
    require("seed", seed, is_seed, "an integer from 0 to 2**64 - 1")
    require_bools(progress=progress, sync=sync)
    limits = parse_budget("budget", budget)
    distills = resolve_loss(loss) is None
    if loss is None or (teacher is not None) != distills:
        raise ChitaError(
            "give either teacher, the dense network to imitate, with loss one of "
            f"{list(DISTILLED)}, or loss, a function of outputs and targets or the name of one; "
            f"got teacher={type(teacher).__name__} and loss={loss!r}"
        )
    if teacher is not None:
        _check_teacher(teacher, model)
    with joined_ranks() as ranks, own_precision(), merged_ties(model):
        name = loss if isinstance(loss, str) else None
        agree_on_options(ranks, {"loss": name, "budget": budget, "seed": seed, "sync": sync})
        agree_on_model(ranks, model, sync=sync)
        if teacher is not None:
            agree_on_model(ranks, teacher, sync=sync, role="teacher")
        weights, kept = _supported(model, masks)
        agree_on_masks(ranks, weights, kept, sync=sync)
        recovery, task, check = _prepare(
            model, weights, batches, teacher, loss, limits, seed, ranks, sync=sync
        )
        apply_masks(model, weights.split(kept) if masks else {})
        with run_bar(show=progress and ranks.rank == 0) as bar:
            forecast = Forecast(bar)
            forecast.begin("range test")
            forecast.expect(limits.planned_seconds)
            rate, costs = _measure(recovery, weights, task.pool, limits, ranks, check)
            elapsed = time.perf_counter() - began
            fitting = limits.steps(task.pool.samples, task.pool.batch, costs, elapsed)
            # The ranks measure different times, but must take the same steps.
            steps = ranks.from_first(lambda: fitting)
            if steps < 1:
                raise ChitaError(
                    f"budget={budget!r} is too small: no time is left after the range test, and a "
                    f"training step takes {costs.step:.2g} s; give more time, or 'N steps'"
                )
            forecast.expect(costs.seconds(steps))
            forecast.begin_training(steps, costs.step)
            found = recovery.run(kept, steps=steps, rate=rate, key=0, progress=forecast.step)
        if not found.finite:
            check()
    if not found.kept:
        logger.warning("training does not lower the held-out loss: the model is unchanged")
    return RecoverResult(
        model=model,
        loss_before=found.before.mean,
        loss_after=found.after.mean,
        kept=found.kept,
        steps=steps,
        samples=task.pool.samples,
        rate=rate,
        seconds=time.perf_counter() - began,
    )


def _check_teacher(teacher: nn.Module, model: nn.Module) -> None:
    check_module(teacher, "teacher")
    if unwrapped(teacher) is unwrapped(model):
        raise ChitaError(
            "teacher is the model itself, whose own outputs it already gives: pass the dense "
            "network, such as a copy.deepcopy of the model before it was pruned"
        )


def _supported(model: nn.Module, masks: Mapping[str, Tensor] | None) -> tuple[Weights, Tensor]:
    """Return the weights that must keep their zeros, p in total, and their support, (p,) bool."""
    given = {} if masks is None else dict(check_masks(model, masks))
    if not given:
        weights = Weights(model)
        return weights, weights.vector() != 0
    names = [name for name, parameter in model.named_parameters() if parameter in given]
    weights = Weights(model, include=[glob.escape(name) for name in names])
    return weights, torch.cat([given[weight.parameter].reshape(-1) for weight in weights])


def _prepare(
    model: nn.Module,
    weights: Weights,
    batches: Any,
    teacher: nn.Module | None,
    loss: Loss | str,
    limits: Budget,
    seed: int,
    ranks: Ranks,
    *,
    sync: bool,
) -> tuple[GuardedTraining, RecoveryTask, Callable[[], None]]:
    """Divide the samples, and return the recovery, what it trains on, and a check of the samples.

    The check raises an error if the loss of a sample is not finite.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ChitaError(
            "model has no parameter that requires gradients, so there is nothing to train; call "
            "model.requires_grad_(True)"
        )
    spec = InputSpec.of(model)
    held_out_loss = own = resolve_loss(loss)
    dense: Dense | None = None
    stream: SampleStream
    if teacher is not None:
        stream = inputs = InputStream(batches, seed, spec=spec)
        dense = inputs.dense = _teacher(teacher, model, inputs.peek(), squares=loss == DISTILL_MSE)
        held_out_loss = dense.divergence
    else:
        stream = SampleStream(batches, seed, spec=spec, ignored=ignored_label(own))
    held, at_once = _hold_out(stream), stream.at_once()
    held = agree_on_held_out(ranks, held, labelled=teacher is None, sync=sync)
    if ranks.rank > 0 and sync:
        stream.exclude(held)
    first, samples = stream.sample, first_samples(stream.one_pass(), limits.samples)
    assert first is not None
    if dense is None:
        task = own_loss(samples, own, at_once=at_once, place=weights.device)
    else:
        task = distillation(dense, samples, first, at_once=at_once, place=weights.device)
    trained = [w.parameter for w in weights if w.parameter.requires_grad]
    training = RecoveryTraining(model, trained, task, ranks=ranks, seed=seed)
    held_out = HeldOut(model, weights, held, held_out_loss, ranks, fast=True)
    check = partial(check_samples, model, stream, held_out_loss, task.pool.samples)
    return GuardedTraining(model, weights, training, held_out.losses_now), task, check


def _hold_out(stream: SampleStream) -> list[Batch]:
    """Hold out a share of the samples, to compare the model before and after the training."""
    have = stream.count(int(MOST_HELD_OUT / HELD_OUT_SHARE))
    if have < 2:
        raise ChitaError(f"batches must contain at least 2 samples, got {have}")
    count = min(MOST_HELD_OUT, max(1, int(HELD_OUT_SHARE * have)))
    (held,) = stream.hold_out((count,), stream.at_once(), rest=have - count)
    if not (held and stream.count(1)):
        raise ChitaError(
            f"batches contain {have} samples of equal content: none can be held out to guard the "
            "training; give more data"
        )
    return held


def _measure(
    recovery: GuardedTraining,
    weights: Weights,
    pool: SamplePool,
    limits: Budget,
    ranks: Ranks,
    check: Callable[[], None],
) -> tuple[float, Costs]:
    """Return the rate that the range test finds, and the costs of the training.

    If no rate gives a finite loss, `check` names the sample that is the reason.
    """
    useful = limits.useful_steps(pool.samples, pool.batch)
    wanted = steps_of_test(useful, limits.seconds, recovery.time_step())
    tests = ranks.from_first(lambda: wanted)
    rate = recovery.find_rate(weights.vector(), recovery.losses_now().mean, steps=tests)
    if rate is None:
        check()
        raise ChitaError(
            f"training with a relative rate of {SLOWEST:g} gives a held-out loss that is not "
            "finite; check the data and the model"
        )
    return rate, Costs(recovery.step_seconds, recovery.check_seconds, stages=1)


def _teacher(teacher: nn.Module, model: nn.Module, first: Batch | None, *, squares: bool) -> Dense:
    """Return the teacher; its answers must have the form of the model's."""
    if first is None:
        raise ChitaError("batches contain no samples")
    sample = first[:1]
    with torch.no_grad(), evaluating(model):
        own = answer_of(sample.to(next(model.parameters()).device).outputs(model))
    try:
        check_model(teacher)
        dense = Dense(teacher, first, 0, squares=squares)
    except ChitaError as error:
        raise ChitaError(
            f"teacher must be a network that takes the inputs of the model, got "
            f"{type(teacher).__name__}: {error}"
        ) from error
    wanted = dense.answers(sample).content[1]["answer"]  # type: ignore[index]
    if own.shape != wanted.shape:
        raise ChitaError(
            f"teacher gives outputs of shape {tuple(wanted.shape)} and model of shape "
            f"{tuple(own.shape)}: they must be the same; give the network before pruning as teacher"
        )
    return dense
