"""Repair without training: forward passes put right what pruning has shifted.

Two repairs are tried, one after the other: the statistics of batch norm are estimated anew, and
biases give back the dense network's means. Each stays only if the loss on held-out samples falls;
else the model is what it was, bit for bit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chita.batch_norm import batch_norm_layers, reestimate_batch_norm
from chita.bias_correction import DenseMeans

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
        kept: whether it was better.
    """

    repair: str
    loss_before: float
    loss_after: float
    kept: bool


def repair(
    model: nn.Module, dense: DenseMeans, held_out_loss: Callable[[nn.Module], float]
) -> list[RepairRow]:
    """Repair a pruned model in place; zeros stay zeros, and no parameter is added.

    Batch norm comes first: what it takes back, biases need not.

    Args:
        model: pruned since `dense` was gathered, or a pruned copy.
        dense: the dense network's means, with the calibration samples, in batches of equal size;
            batch norm needs some dozens of samples in each.
        held_out_loss: model -> its loss on other samples; it leaves the model as it is.

    Returns:
        A row for each repair that there was something to do for.
    """
    statistics = [buffer for layer in batch_norm_layers(model) for buffer in layer.buffers()]
    repairs = (
        (BATCH_NORM, statistics, lambda: reestimate_batch_norm(model, dense.batches)),
        (BIASES, dense.biases(model), lambda: correct_biases(model, dense)),
    )
    rows: list[RepairRow] = []
    loss: float | None = None
    for name, changed, change in repairs:
        if not changed:
            continue
        before = held_out_loss(model) if loss is None else loss
        after, kept = _try(model, changed, change, before, held_out_loss)
        loss = after if kept else before
        rows.append(RepairRow(name, before, after, kept))
        logger.info("%s", rows[-1])
    return rows


@torch.no_grad()
def correct_biases(model: nn.Module, dense: DenseMeans) -> None:
    """Move the biases of a pruned model so that its layers have the dense network's means."""
    for bias, shift in dense.bias_shifts(model).items():
        bias.add_(shift.to(bias.dtype))


@torch.no_grad()
def _try(
    model: nn.Module,
    changed: Sequence[Tensor],
    change: Callable[[], None],
    before: float,
    held_out_loss: Callable[[nn.Module], float],
) -> tuple[float, bool]:
    """The loss after a change of some tensors, and whether it fell; if not, they are restored."""
    saved = [tensor.clone() for tensor in changed]
    kept = False
    try:
        change()
        after = held_out_loss(model)
        kept = math.isfinite(after) and not after >= before  # better than no number at all, too
    finally:
        if not kept:
            for tensor, values in zip(changed, saved, strict=True):
                tensor.copy_(values)
    return after, kept
