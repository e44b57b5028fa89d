"""Hugging Face's Conv1D, the layer of GPT-2: Linear with a weight (inputs, outputs)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from chita.curvature.per_sample.linear import linear_pieces
from chita.curvature.per_sample.registry import Piece, register_gradient_rule
from chita.model.hooks import Call


@register_gradient_rule("transformers.pytorch_utils.Conv1D")
def conv1d_hf(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    """Yield the pieces of Conv1D, whose weight is (inputs, outputs)."""
    return linear_pieces(call, gradient, rows, inputs_first=True)
