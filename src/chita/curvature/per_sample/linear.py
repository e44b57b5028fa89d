"""Linear layers: outer products of output gradients and inputs."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from chita.curvature.per_sample.products import row_products
from chita.curvature.per_sample.registry import Piece, rule
from chita.model.hooks import Call


@rule(nn.Linear)
def linear(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    """Input (R * m, ..., inputs) and output gradient (R * m, ..., outputs)."""
    g = gradient.reshape(rows, -1, gradient.shape[-1])
    if "bias" in call.owner.owned:
        yield Piece("bias", 0, g.sum(1).t())
    if "weight" in call.owner.owned:
        x = call.input.reshape(rows, -1, call.input.shape[-1])
        left, right = g.transpose(1, 2), x.transpose(1, 2)
        yield from row_products("weight", left.unsqueeze(1), right.unsqueeze(1))
