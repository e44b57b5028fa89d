"""Hugging Face's Conv1D, the layer of GPT-2: Linear with a weight (inputs, outputs)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from chita.curvature.per_sample.linear import row_products
from chita.curvature.per_sample.registry import Piece, register_gradient_rule
from chita.model.hooks import Call


@register_gradient_rule("transformers.pytorch_utils.Conv1D")
def conv1d_hf(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    """Yield the pieces for input (R * m, ..., inputs) and output gradient (R * m, ..., outputs)."""
    g = gradient.reshape(rows, -1, gradient.shape[-1])
    if "bias" in call.owner.owned:
        yield Piece("bias", 0, g.sum(1).t())
    if "weight" in call.owner.owned:
        x = call.input.reshape(rows, -1, call.input.shape[-1])
        left, right = x.transpose(1, 2), g.transpose(1, 2)
        yield from row_products("weight", left.unsqueeze(1), right.unsqueeze(1))
