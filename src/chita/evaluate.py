"""Top-1 accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from chita.errors import ChitaError


@contextmanager
def modes_restored(model: nn.Module) -> Iterator[None]:
    """Give every module its training flag back at the end, whatever happens in between."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's first parameter or buffer; the CPU if it has none."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


@torch.no_grad()
def accuracy(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    device: torch.device | str | None = None,
) -> float:
    """The share of samples, in percent, whose largest output is at the target.

    Args:
        model: gives (B, classes) outputs; evaluated in eval mode and left in its own modes.
        batches: inputs and (B,) targets.
        device: where the inputs go; by default where the model is.
    """
    device = device_of(model) if device is None else device
    correct = total = 0
    with modes_restored(model):
        model.eval()
        for inputs, targets in batches:
            predictions = model(inputs.to(device)).argmax(dim=1)
            correct += int((predictions == targets.to(device)).sum())
            total += len(targets)
    if total == 0:
        raise ChitaError("batches are empty: accuracy needs at least one sample")
    return 100 * correct / total
