"""Layers that compute y = W x + b at each position: Linear, and convolutions of kernel size 1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from chita.model.axes import channel_dim

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, *CONVOLUTIONS)


def is_product(layer: nn.Module) -> bool:
    """Return whether a layer is exactly such a product, and not a subclass with other behaviour."""
    if type(layer) is nn.Linear:
        return True
    return (
        isinstance(layer, CONVOLUTIONS)
        and type(layer) in CONVOLUTIONS
        and set(layer.kernel_size) == {1}
        and layer.groups == 1
        and not any(_padding(layer))
    )


class Product(nn.Module, ABC):
    """A layer for inference that multiplies in another way.

    Args:
        layer: a layer for which `is_product` holds; its weight is read but not stored.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        assert isinstance(layer, LAYERS)
        self.dim = channel_dim(layer)  # where the input features are, with or without a batch
        strides = () if isinstance(layer, nn.Linear) else layer.stride
        self.taken: tuple[Any, ...] = (..., *(slice(None, None, stride) for stride in strides))
        bias = None if layer.bias is None else layer.bias.detach().clone()
        self.register_buffer("bias", bias)
        self.bias: Tensor | None

    @abstractmethod
    def product(self, x: Tensor) -> Tensor:
        """Map (N, i) inputs to (N, o) outputs, W x without b."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        rows = x[self.taken].movedim(self.dim, -1)
        y = self.product(rows.reshape(-1, rows.shape[-1]))
        if self.bias is not None:
            y = y + self.bias
        return y.reshape(*rows.shape[:-1], y.shape[-1]).movedim(-1, self.dim)


def matrix_of(layer: nn.Module) -> Tensor:
    """Return W as a matrix, (o, i)."""
    assert isinstance(layer.weight, Tensor)
    return layer.weight.detach().flatten(1)


def zero_share(layer: nn.Module) -> float:
    """Return the share of a layer's weights that are zero."""
    weight = matrix_of(layer)
    return 1 - int(torch.count_nonzero(weight)) / max(weight.numel(), 1)


def _padding(layer: nn.Module) -> tuple[int, ...]:
    """Return the zeros added around the input; padding="same" adds none to a kernel of size 1."""
    padding = layer.padding
    return padding if isinstance(padding, tuple) else ()
