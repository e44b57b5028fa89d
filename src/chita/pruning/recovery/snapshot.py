"""The values of all parameters and buffers of a model, to restore them later."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import torch
from torch import Tensor, nn

from chita.model.weights import Weights


class Snapshot:
    """A copy of all parameters and buffers of a model.

    Args:
        model: the model; it is referenced, and its tensors are copied.
    """

    def __init__(self, model: nn.Module) -> None:
        tensors = chain(model.parameters(), model.buffers())
        self._values = [(tensor, tensor.detach().clone()) for tensor in tensors]

    @torch.no_grad()
    def restore(self) -> None:
        """Write the values back into the model, in place."""
        for tensor, value in self._values:
            tensor.copy_(value)


def other_tensors(model: nn.Module, weights: Weights) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers except the prunable weights, by name."""
    prunable = {weight.name for weight in weights}
    return {
        name: tensor.detach().cpu().clone()
        for name, tensor in chain(model.named_parameters(), model.named_buffers())
        if name not in prunable
    }


@torch.no_grad()
def load_tensors(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Write values into the parameters and buffers of these names, in place."""
    tensors = dict(chain(model.named_parameters(), model.named_buffers()))
    for name, value in values.items():
        tensors[name].copy_(value)
