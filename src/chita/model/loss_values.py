"""The loss without gradients, for held-out samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.batch import Batch, parse_batch, tensors_of
from chita.model.losses import Loss, batch_loss, row_losses, scalar
from chita.model.modes import device_of, evaluating
from chita.model.outputs import logits_of
from chita.solver.ranks import ALONE, Ranks

FEW_PARTS = 8  # of a batch whose parts need a forward pass each


@torch.no_grad()
def mean_loss(
    model: nn.Module, batches: Iterable[Any], loss: Loss | None = None, ranks: Ranks = ALONE
) -> float:
    """The mean loss over the samples of `batches`, in eval mode.

    Args:
        model: any module.
        batches: as a user gives them, or such as `SampleStream.take` gives.
        loss: as for `gradient_matrix`.
        ranks: those who share the samples, each with batches of its own, or none.
    """
    device = device_of(model)
    total, samples = 0.0, 0
    with evaluating(model):
        for number, given in enumerate(batches):
            batch = parse_batch(number, given).to(device)
            total += float(batch_loss(model, batch, loss)) * batch.size
            samples += batch.size
    both = ranks.sum(torch.tensor([total, samples], dtype=torch.float64))
    return float(both[0] / both[1])


@torch.no_grad()
def part_losses(
    model: nn.Module, batches: Sequence[Batch], loss: Loss | None, part: int
) -> tuple[Tensor, Tensor]:
    """Compute the loss of small parts of the samples, in eval mode.

    One forward pass gives the losses of all parts of a batch. Where the outputs cannot be divided
    by samples, or the model computes its own loss, a batch is cut into a few parts, each with a
    forward pass of its own.

    Args:
        model: any module.
        batches: samples.
        loss: as for `gradient_matrix`.
        part: m, the samples in a part; one that m does not divide is a single part.

    Returns:
        The losses and the sizes of the parts, two float64 vectors (parts,) on the CPU.
    """
    device = device_of(model)
    losses, sizes = [torch.empty(0)], list[int]()
    with evaluating(model):
        for batch in batches:
            here = batch.to(device)
            found = _row_losses(model, here, loss, part)
            if found is not None:
                losses.append(found)
                sizes += [batch.size // len(found)] * len(found)
                continue
            for piece in here.split(max(part, -(-batch.size // FEW_PARTS))):
                losses.append(batch_loss(model, piece, loss).reshape(1))
                sizes.append(piece.size)
    each = torch.cat([found.detach().double().cpu() for found in losses])
    return each, torch.tensor(sizes, dtype=torch.float64)


def _row_losses(model: nn.Module, batch: Batch, loss: Loss | None, part: int) -> Tensor | None:
    """Compute the loss of each part in one forward pass; None if that cannot be done."""
    rows, rest = divmod(batch.size, part)
    if rest or rows < 2 or isinstance(batch.content, dict):
        return None
    outputs = batch.outputs(model)
    seen = tensors_of(logits_of(outputs) if loss is None else outputs)
    if not seen or any(tensor.shape[:1] != (batch.size,) for tensor in seen):
        return None
    try:
        found = row_losses(loss, outputs, batch.content[1], rows)
    except ChitaError:  # the loss may need outputs of their own type; otherwise it fails again
        return None
    scalar(found[0])
    return found
