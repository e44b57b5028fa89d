"""The loss without gradients, for held-out samples."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from chita.batches import Batch
from chita.errors import ChitaError
from chita.gradients.losses import Loss, batch_loss
from chita.modes import device_of, evaluating


@torch.no_grad()
def mean_loss(model: nn.Module, batches: Iterable[Batch], loss: Loss | None = None) -> float:
    """The mean loss over the samples of `batches`, in eval mode.

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
    if not samples:
        raise ChitaError("the mean loss needs at least one sample, got none")
    return total / samples
