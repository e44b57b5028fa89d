"""Linear: sums of outer products of output gradients and inputs, for each row of A."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from chita.curvature.per_sample.registry import Piece, register_gradient_rule
from chita.model.hooks import Call

BLOCK = 1 << 19
GPU_BLOCK = 1 << 22
"""Entries of A made at a time: they must still be in the cache when they are transposed."""


def row_products(name: str, left: Tensor, right: Tensor) -> Iterator[Piece]:
    """Compute left_r @ right_r^T for every row r and group, in pieces.

    Args:
        name: the parameter, of shape (groups * outputs, inputs).
        left: (R, groups, outputs, K).
        right: (R, groups, inputs, K).
    """
    dtype = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    left, right = left.to(dtype), right.to(dtype)
    rows, groups, outputs, _ = left.shape
    inputs = right.shape[2]
    block = BLOCK if left.device.type == "cpu" else GPU_BLOCK
    if groups == 1:
        step = max(1, block // (rows * inputs))
        for first in range(0, outputs, step):
            part = left[:, 0, first : first + step]
            yield Piece(name, first * inputs, _transposed_product(part, right[:, 0]))
    else:
        step = max(1, block // (rows * outputs * inputs))
        for first in range(0, groups, step):
            some = slice(first, first + step)
            product = torch.matmul(left[:, some], right[:, some].transpose(2, 3))
            yield Piece(name, first * outputs * inputs, product.flatten(1).t())


def _transposed_product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply (B, o, K) and (B, i, K) to (o * i, B)."""
    if left.shape[2] == 1:  # an outer product can be computed transposed
        a, b = left[:, :, 0].t(), right[:, :, 0].t().contiguous()
        return (a[:, None] * b[None]).flatten(0, 1)
    return torch.bmm(left, right.transpose(1, 2)).flatten(1).t()


def linear_pieces(
    call: Call, gradient: Tensor, rows: int, *, inputs_first: bool = False
) -> Iterator[Piece]:
    """Yield the pieces of a layer y = W x + b.

    Args:
        call: the call of the layer; its input is (R * m, ..., inputs).
        gradient: the output gradient, (R * m, ..., outputs).
        rows: R.
        inputs_first: whether the weight is (inputs, outputs) instead of (outputs, inputs).
    """
    g = gradient.reshape(rows, -1, gradient.shape[-1])
    if "bias" in call.owner.owned:
        yield Piece("bias", 0, g.sum(1).t())
    if "weight" in call.owner.owned:
        x = call.input.reshape(rows, -1, call.input.shape[-1])
        left, right = (x, g) if inputs_first else (g, x)
        yield from row_products(
            "weight", left.transpose(1, 2).unsqueeze(1), right.transpose(1, 2).unsqueeze(1)
        )


@register_gradient_rule(nn.Linear)
def linear(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    """Yield the pieces of nn.Linear, whose weight is (outputs, inputs)."""
    return linear_pieces(call, gradient, rows)
