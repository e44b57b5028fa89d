"""chita.recover: train what is left of a pruned network, with its zeros held."""

from __future__ import annotations

import glob
import logging
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError, is_seed, require, require_bools
from chita.model.checks import check_model, check_module
from chita.model.convolutions import convolution_trials
from chita.model.forward import unwrapped
from chita.model.freed_memory import freed_memory_reused
from chita.model.layers import prunable_by_default
from chita.model.losses import Loss
from chita.model.masks import apply_masks, check_masks, warn_of_empty
from chita.model.named_losses import DISTILLED, resolve_loss
from chita.model.samples.arrays import InputSpec
from chita.model.ties import merged_ties
from chita.model.weights import Weights, check_finite
from chita.pruning.budget import parse_budget
from chita.pruning.forecast import Forecast
from chita.pruning.rank_agreement import (
    agree_on_masks,
    agree_on_model,
    agree_on_options,
)
from chita.pruning.recovery.guarded_training import DIVERGED
from chita.pruning.recovery.result import RecoverResult
from chita.pruning.recovery.single_recovery import RecoverOptions, SingleRecovery
from chita.pruning.recovery.snapshot import Snapshot
from chita.report.progress import run_bar
from chita.solver.precision import own_precision
from chita.solver.ranks import Ranks, joined_ranks

logger = logging.getLogger(__name__)


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
            `PruneResult`. Prunable weights without a mask stay zero where they are zero.
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
    options = RecoverOptions(teacher, loss, budget, parse_budget("budget", budget), seed, sync)
    _check_teacher(teacher, model, loss)
    with (
        joined_ranks() as ranks,
        convolution_trials(False),
        own_precision(),
        freed_memory_reused(),
        merged_ties(model),
    ):
        _agree(ranks, model, options)
        weights, kept = _supported(model, masks)
        agree_on_masks(ranks, weights, kept, sync=sync)
        _check_kept(weights, kept)
        recovery = SingleRecovery(model, weights, batches, options, ranks)
        start = Snapshot(model) if masks else None
        apply_masks(model, weights.split(kept) if masks else {})
        try:
            with run_bar(show=progress and ranks.rank == 0) as bar:
                found, rate = recovery.run(kept, began, Forecast(bar))
        except ChitaError:
            if start is not None:
                start.restore()
            raise
    if not found.kept:
        cause = "training does not lower the held-out loss" if found.finite else DIVERGED
        logger.warning("the training is undone, only the masks are applied: %s", cause)
    return RecoverResult(
        model=model,
        loss_before=found.before.mean,
        loss_after=found.after.mean,
        kept=found.kept,
        steps=found.steps,
        samples=recovery.samples,
        rate=rate,
        seconds=time.perf_counter() - began,
    )


def _check_teacher(teacher: Any, model: nn.Module, loss: Any) -> None:
    """Raise a ChitaError unless there is either a teacher or a loss."""
    distills = resolve_loss(loss) is None
    if loss is None or (teacher is not None) != distills:
        raise ChitaError(
            "give either teacher, the dense network to imitate, with loss one of "
            f"{list(DISTILLED)}, or loss, a function of outputs and targets or the name of one; "
            f"got teacher={type(teacher).__name__} and loss={loss!r}"
        )
    if teacher is None:
        return
    check_module(teacher, "teacher")
    if unwrapped(teacher) is unwrapped(model):
        raise ChitaError(
            "teacher is the model itself, whose own outputs it already gives: pass the dense "
            "network, such as a copy.deepcopy of the model before it was pruned"
        )
    own, other = (InputSpec.of(each).dtype for each in (model, teacher))
    if own != other:
        raise ChitaError(
            f"teacher must take the inputs of the model, got {type(teacher).__name__} of {other} "
            f"and a model of {own}; convert the teacher, as by teacher.to({own})"
        )


def _agree(ranks: Ranks, model: nn.Module, options: RecoverOptions) -> None:
    """Compare the arguments and the networks of the ranks, or copy those of rank 0."""
    given = {name: getattr(options, name) for name in ("budget", "seed", "sync")}
    name = options.loss if isinstance(options.loss, str) else None
    agree_on_options(ranks, {"loss": name, **given})
    agree_on_model(ranks, model, sync=options.sync)
    if options.teacher is not None:
        agree_on_model(ranks, options.teacher, sync=options.sync, role="teacher")


def _supported(model: nn.Module, masks: Mapping[str, Tensor] | None) -> tuple[Weights, Tensor]:
    """Return the weights that must keep their zeros, p in total, and their support, (p,) bool.

    Prunable weights without a mask keep their zeros, too.
    """
    given = {} if masks is None else dict(check_masks(model, masks))
    held = {*given, *prunable_by_default(model)}
    names = [name for name, parameter in model.named_parameters() if parameter in held]
    weights = Weights(model, include=[glob.escape(name) for name in names] if given else None)
    check_finite(weights)
    kept = [given.get(w.parameter, w.parameter.detach() != 0).reshape(-1) for w in weights]
    return weights, torch.cat(kept)


def _check_kept(weights: Weights, kept: Tensor) -> None:
    """Raise a ChitaError if no prunable weight is kept; warn of each layer that keeps none.

    Args:
        weights: the weights that must keep their zeros, p in total.
        kept: their support, (p,) bool.
    """
    if not bool(kept.any()):
        raise ChitaError(
            f"masks keep none of the {weights.size} prunable weights: give masks that are True "
            "where a weight is kept, such as PruneResult.masks, or, without masks, a model whose "
            "weights are not all zero"
        )
    warn_of_empty(weights.split(kept))
