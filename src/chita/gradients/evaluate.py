"""The loss without gradients, for held-out samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from chita.batch import parse_batch
from chita.gradients.losses import Loss, batch_loss
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
