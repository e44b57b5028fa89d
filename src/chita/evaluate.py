"""Top-1 accuracy."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.modes import device_of, evaluating


@torch.no_grad()
def accuracy(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The share of samples, in percent, whose largest output is at the target.

    Args:
        model: gives (B, classes) outputs; evaluated in eval mode and left in its own modes.
        batches: inputs and (B,) targets; they go where the model is.
    """
    device = device_of(model)
    correct = total = 0
    with evaluating(model):
        for inputs, targets in batches:
            predictions = model(inputs.to(device)).argmax(dim=1)
            correct += int((predictions == targets.to(device)).sum())
            total += len(targets)
    if total == 0:
        raise ChitaError("batches are empty: accuracy needs at least one sample")
    return 100 * correct / total
