"""Re-estimate the statistics of batch norm, as the paper does before pruning ResNet20."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from chita.errors import ChitaError
from chita.model.forward import device_of, modes_restored
from chita.model.layers import batch_norm_layers
from chita.model.samples.batch import Batch
from chita.model.samples.given_data import read_inputs


@torch.no_grad()
def reestimate_batch_norm(model: nn.Module, batches: Any) -> None:
    """Set each layer's running mean and variance to their averages over the batches.

    Batch norm runs in train mode, and all other layers, such as dropout, in eval mode. Momenta and
    modes are restored at the end; after an error, the statistics are restored, too.

    Args:
        model: changed in place if it has batch norm layers with running statistics.
        batches: as for `chita.prune`; the targets are not used.
    """
    layers = batch_norm_layers(model)
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


def _run(model: nn.Module, layers: list[_BatchNorm], batches: Any) -> None:
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the plain average over all batches
    device = device_of(model)
    seen = 0
    with modes_restored(model):
        model.eval()
        for layer in layers:
            layer.train()
        for inputs, size in read_inputs(model, batches):
            Batch((inputs, ()), size).to(device).outputs(model)
            seen += 1
    if seen == 0:
        raise ChitaError("batches are empty: batch norm cannot be re-estimated")
