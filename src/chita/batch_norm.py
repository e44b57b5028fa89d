"""Re-estimate the statistics of batch norm, as the paper does before it prunes ResNet20."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from chita.errors import ChitaError
from chita.modes import device_of, modes_restored


@torch.no_grad()
def reestimate_batch_norm(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Set each layer's running mean and variance to their averages over the batches.

    The model sees the batches in train mode, with what augmentation they bring. Momenta and modes
    are restored; should anything fail, so are the statistics.

    Args:
        model: changed in place, if it has batch norm layers with running statistics.
        batches: inputs and targets; the targets are not used.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not layers:
        return
    before = [[buffer.clone() for buffer in layer.buffers()] for layer in layers]
    momenta = [layer.momentum for layer in layers]
    try:
        _run(model, layers, batches)
    except BaseException:
        for layer, buffers in zip(layers, before, strict=True):
            for buffer, value in zip(layer.buffers(), buffers, strict=True):
                buffer.copy_(value)
        raise
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


def _run(
    model: nn.Module, layers: list[_BatchNorm], batches: Iterable[tuple[Tensor, Tensor]]
) -> None:
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the plain average over all batches
    device = device_of(model)
    seen = 0
    with modes_restored(model):
        model.train()
        for inputs, _ in batches:
            model(inputs.to(device))
            seen += 1
    if seen == 0:
        raise ChitaError("batches are empty: batch norm cannot be re-estimated")
