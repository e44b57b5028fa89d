"""A layer as a matrix A, with which the solvers of the paper run on it unchanged.

All rows of a layer share the Gram matrix H = R^T R. Their problem is that of the block-diagonal
A = I (x) R with a block R, (i, i), for each row. Only R is stored, and a product with A is one with
all rows at once. The columns are scaled to unit length, the metric in which a weight is as large as
its contribution to the outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.layer_wise.layer import Layer
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.problem import Problem


class LayerMatrix(GradientMatrix):
    """I (x) R D^-1, with a block for each row of a layer, R^T R = H and D^2 the diagonal of H.

    Args:
        layer: the layer, (groups, rows, i).
    """

    def __init__(self, layer: Layer) -> None:
        size = layer.w0.numel()
        super().__init__(size, size, layer.w0.dtype, layer.w0.device)
        self.scale = layer.diagonal.sqrt()  # (groups, 1, i)
        self._shape = layer.w0.shape
        self._root = layer.factor.mT.to(layer.w0.dtype) / self.scale  # R D^-1, (groups, i, i)

    def read(self, start: int, stop: int) -> Tensor:
        rows = torch.zeros(stop - start, self.p, dtype=self.dtype, device=self.device)
        rows.diagonal(start).fill_(1.0)
        for row in rows:
            row.copy_(self._all_columns(row))
        return rows

    def columns(self, index: Tensor) -> GradientMatrix:
        return HeldMatrix(torch.cat([self.read(0, 0), *self.chunks(index)]))

    def adjoint(self, r: Tensor) -> Tensor:
        return (r.view(self._shape) @ self._root).flatten()

    def _combine(self, index: Tensor, values: Tensor) -> Tensor:
        return self._all_columns(values.new_zeros(self.p).index_copy_(0, index, values))

    def _all_columns(self, d: Tensor) -> Tensor:
        return (d.view(self._shape) @ self._root.mT).flatten()

    def problem(self, layer: Layer) -> Problem:
        """Return the problem of a layer over the scaled weights D w."""
        w0 = self.scaled(layer.w0)
        return Problem.build(self, w0, lam=0.0, alpha=0.0, constraint=layer.constraint)

    def scaled(self, w: Tensor) -> Tensor:
        """Return D w, (p,), for weights (groups, rows, i)."""
        return (w * self.scale).flatten()

    def weights(self, scaled: Tensor) -> Tensor:
        """Return w, (groups, rows, i), for D w, (p,)."""
        return scaled.view(self._shape) / self.scale

    def mask(self, support: Tensor) -> Tensor:
        """Return a support, (k,), as a mask, (groups, rows, i)."""
        inside = torch.zeros(self.p, dtype=torch.bool, device=self.device)
        return inside.index_fill_(0, support, True).view(self._shape)
