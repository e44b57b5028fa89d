"""Repair without training: forward passes put right what pruning has shifted.

Two repairs are tried, one after the other: the statistics of batch norm are estimated anew, and
biases give back the dense network's means. Each stays only if the loss on held-out samples falls
by more than two standard errors and the floor, if there is one, still holds; else the model is
what it was, bit for bit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.files.finite import finite_or_none
from chita.model.batch_norm import batch_norm_layers, reestimate_batch_norm
from chita.model.weights import Weights
from chita.pruning.bias_correction import DenseMeans
from chita.pruning.calibration import Calibration
from chita.pruning.held_out import PartLosses

REPAIR_SAMPLES, REPAIR_BATCH = 1024, 128  # at most, and in a forward pass

BATCH_NORM = "batch norm"
BIASES = "biases"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RepairRow:
    """One repair that was tried.

    Attributes:
        repair: "batch norm" or "biases".
        loss_before: on the held-out samples.
        loss_after: with the repair.
        kept: whether it was better, and no floor was broken.
    """

    repair: str
    loss_before: float
    loss_after: float
    kept: bool

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        before, after = finite_or_none(self.loss_before), finite_or_none(self.loss_after)
        return {**asdict(self), "loss_before": before, "loss_after": after}


def dense_means(model: nn.Module, weights: Weights, calibration: Calibration) -> DenseMeans:
    """What the model, not yet pruned, is to be repaired by: its means over samples of A."""
    samples, batch = min(REPAIR_SAMPLES, calibration.rows * calibration.batch), calibration.batch
    size = min(REPAIR_BATCH, calibration.at_once, samples)
    size -= size % batch if size > batch else 0  # the rows of A begin where a mini-batch does
    return DenseMeans(model, weights, list(calibration.stream.take(samples // size * size, size)))


def repair(
    model: nn.Module,
    dense: DenseMeans,
    losses_now: Callable[[], PartLosses],
    holds: Callable[[], bool],
) -> list[RepairRow]:
    """Repair a pruned model in place; zeros stay zeros, and no parameter is added.

    Batch norm comes first: what it takes back, biases need not.

    Args:
        model: pruned since `dense` was gathered, or a pruned copy.
        dense: the dense network's means, with the calibration samples, in batches of equal size;
            batch norm needs some dozens of samples in each.
        losses_now: the losses of the model as it is, on held-out samples.
        holds: whether the model as it is keeps to the floor.

    Returns:
        A row for each repair that there was something to do for; one that cannot be done, such as
        batch norm's with one value for each channel, has none.
    """
    statistics = [buffer for layer in batch_norm_layers(model) for buffer in layer.buffers()]
    repairs = (
        (BATCH_NORM, statistics, lambda: reestimate_batch_norm(model, dense.batches)),
        (BIASES, dense.biases(model), lambda: correct_biases(model, dense)),
    )
    rows: list[RepairRow] = []
    losses: PartLosses | None = None
    for name, changed, change in repairs:
        if not changed:
            continue
        before = losses = losses_now() if losses is None else losses
        try:
            after, kept = _try(changed, change, before, losses_now, holds)
        except ChitaError as error:
            logger.warning("the repair of %s is left out: %s", name, error)
            continue
        losses = after if kept else before
        rows.append(RepairRow(name, before.mean, after.mean, kept))
        logger.info("%s", rows[-1])
    return rows


@torch.no_grad()
def correct_biases(model: nn.Module, dense: DenseMeans) -> None:
    """Move the biases of a pruned model so that its layers have the dense network's means."""
    for bias, shift in dense.bias_shifts(model).items():
        bias.add_(shift.to(bias.dtype))


@torch.no_grad()
def _try(
    changed: Sequence[Tensor],
    change: Callable[[], None],
    before: PartLosses,
    losses_now: Callable[[], PartLosses],
    holds: Callable[[], bool],
) -> tuple[PartLosses, bool]:
    """The losses after a change of some tensors, and whether it stays; if not, it is undone."""
    saved = [tensor.clone() for tensor in changed]
    kept = False
    try:
        change()
        after = losses_now()
        kept = math.isfinite(after.mean) and after.surely_below(before) and holds()
    finally:
        if not kept:
            for tensor, values in zip(changed, saved, strict=True):
                tensor.copy_(values)
    return after, kept
