"""The loss without gradients, for held-out samples."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from chita.batch import Batch
from chita.gradients.losses import Loss, batch_loss
from chita.modes import device_of, evaluating


@torch.no_grad()
def total_loss(
    model: nn.Module, batches: Iterable[Batch], loss: Loss | None = None
) -> tuple[float, int]:
    """The sum of the losses over the samples of `batches`, in eval mode, and their number.

    Args:
        model: any module.
        batches: such as `SampleStream.take` gives.
        loss: as for `gradient_matrix`.
    """
    device = device_of(model)
    total, samples = 0.0, 0
    with evaluating(model):
        for batch in batches:
            total += float(batch_loss(model, batch.to(device), loss)) * batch.size
            samples += batch.size
    return total, samples
