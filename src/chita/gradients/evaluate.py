"""The loss without gradients, for held-out samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from chita.batch import Batch, parse_batch
from chita.gradients.losses import Loss, batch_loss, row_losses, scalar
from chita.modes import device_of, evaluating
from chita.ranks import ALONE, Ranks


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
    """Compute the loss of small parts of the samples, in eval mode: one forward pass a batch.

    Args:
        model: any module.
        batches: samples.
        loss: as for `gradient_matrix`.
        part: m, the samples in a part. A batch that m does not divide is a single part, as is one
            whose loss the model computes itself.

    Returns:
        The losses and the sizes of the parts, two float64 vectors (parts,) on the CPU.
    """
    device = device_of(model)
    losses, sizes = [torch.empty(0)], [torch.empty(0)]
    with evaluating(model):
        for batch in batches:
            rows = batch.size // part if batch.size % part == 0 else 1
            here = batch.to(device)
            if rows == 1 or isinstance(here.content, dict):
                rows, found = 1, batch_loss(model, here, loss).reshape(1)
            else:
                found = row_losses(loss, here.outputs(model), here.content[1], rows)
                scalar(found[0])
            losses.append(found)
            sizes.append(torch.full((rows,), batch.size / rows))
    return (
        torch.cat([each.detach().double().cpu() for each in losses]),
        torch.cat(sizes).double(),
    )
