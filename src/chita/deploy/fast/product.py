"""Layers that compute y = W x + b at each position: Linear, and convolutions of kernel size 1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from chita.model.layers import channel_dim


class Product(nn.Module, ABC):
    """A layer that is one product, computed in another way, for inference.

    Args:
        layer: a layer for which `is_product` holds; its weight is read, not kept.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.dim = channel_dim(layer)  # where the input features are, with or without a batch
        strides: tuple[int, ...] = getattr(layer, "stride", ())
        self.taken: tuple[Any, ...] = (..., *(slice(None, None, stride) for stride in strides))
        bias = getattr(layer, "bias", None)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())
        self.bias: Tensor | None

    @abstractmethod
    def product(self, x: Tensor) -> Tensor:
        """Map (N, i) inputs to (N, o) outputs, W x without b."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the layer."""
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
    """Return the share of a layer's weights that are zero; 0 for a layer without weights."""
    weight = matrix_of(layer)
    return 1 - int(torch.count_nonzero(weight)) / weight.numel() if weight.numel() else 0.0
