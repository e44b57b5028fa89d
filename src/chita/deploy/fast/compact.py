"""Layers without their dead channels: outputs and inputs whose weights are all zero."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from chita.model.layers import channel_dim, is_linear_map


class Compact(nn.Module):
    """A dense Linear layer or convolution over only the live inputs and outputs.

    A dead output is equal to its bias for every input.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        weight = layer.get_parameter("weight").detach()
        bias: Tensor | None = getattr(layer, "bias", None)
        rows, columns = live(weight)
        self.dim = channel_dim(layer)
        self.inner = copy.deepcopy(layer)
        self.inner.weight = nn.Parameter(weight[rows][:, columns].clone(), requires_grad=False)
        if bias is not None:
            self.inner.bias = nn.Parameter(bias.detach()[rows].clone(), requires_grad=False)
        outputs, inputs = weight.shape[:2]
        self.outputs = outputs
        constant = weight.new_zeros(outputs) if bias is None else bias.detach()
        self.register_buffer("constant", constant.clone().view(-1, *[1] * (-1 - self.dim)))
        self.register_buffer("rows", rows if len(rows) < outputs else None)
        self.register_buffer("columns", columns if len(columns) < inputs else None)
        self.constant: Tensor
        self.rows: Tensor | None
        self.columns: Tensor | None

    @classmethod
    def of(cls, layer: nn.Module) -> Compact | None:
        """Return the compact form; None for other layers and for layers without dead channels."""
        if not is_linear_map(layer) or getattr(layer, "groups", 1) > 1:
            return None
        form = cls(layer)
        return None if form.rows is None and form.columns is None else form

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the layer."""
        if self.columns is not None:
            x = x.index_select(self.dim, self.columns)
        y: Tensor = self.inner(x)
        if self.rows is None:
            return y
        shape = list(y.shape)
        shape[self.dim] = self.outputs
        return self.constant.expand(shape).index_copy(self.dim, self.rows, y)


def live(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs and inputs of a weight (o, i, ...) with a non-zero, at least one each."""
    used = (weight.detach() != 0).flatten(2).any(2) if weight.ndim > 2 else weight.detach() != 0
    first = torch.zeros(1, dtype=torch.long, device=weight.device)
    rows, columns = (used.any(dim).nonzero()[:, 0] for dim in (1, 0))
    return (rows if len(rows) else first), (columns if len(columns) else first)
