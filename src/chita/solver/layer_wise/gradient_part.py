"""The part of a layer's problem that couples its rows: 1/2 |A vec(D) + c|^2, with few rows of A.

A holds gradients, one row for each of n samples. A product with A and one with A^T are two passes
over its columns, and a system with A^T A in it is solved in the space of the samples by the
Woodbury formula. Nothing has the size of the layer times itself.

A^T A is far stiffer in a few directions than H is in any. Sums over all weights are therefore
accumulated in float64: their errors lie in these directions. Those of A^T r, which has an entry for
each weight, are spread over all directions, and float32 suffices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.solver.blocks.batched_algebra import definite_factor

PIECE = 1 << 18  # entries of A that are converted at a time: they stay in the cache
PIECE_OF_GPU = 1 << 26


@dataclass(frozen=True)
class GradientPart:
    """A and c for the weights of one layer.

    Attributes:
        columns: the columns of A, (groups, rows, i, n).
        offset: c, (n,).
    """

    columns: Tensor
    offset: Tensor

    def scaled(self, factor: float) -> GradientPart:
        """Return a copy of both, times a factor."""
        return GradientPart(self.columns * factor, self.offset * factor)

    def residual(self, d: Tensor) -> Tensor:
        """Return A vec(D) + c, (n,) in float64, for D, (groups, rows, i)."""
        return self.forward(d) + self.offset

    def forward(self, d: Tensor) -> Tensor:
        """Return A vec(D), (n,) in float64, for D, (groups, rows, i)."""
        flat = d.flatten()
        total = torch.zeros(self.columns.shape[-1], dtype=torch.float64, device=d.device)
        for places, piece in self._pieces():
            total += flat[places].double() @ piece.double()
        return total

    def adjoint(self, r: Tensor) -> Tensor:
        """Return A^T r, (groups, rows, i), for r, (n,), in the type of A."""
        return self.columns @ r.to(self.columns.dtype)

    def squares(self) -> Tensor:
        """Return the diagonal of A^T A, (groups, rows, i)."""
        squares = torch.cat([piece.square().sum(1) for _, piece in self._pieces()])
        return squares.view(self.columns.shape[:-1])

    def gram(self, scale: Tensor) -> Tensor:
        """Return A diag(scale) A^T, (n, n) in float64, for a scale that expands to D's shape."""
        n = self.columns.shape[-1]
        factors = scale.expand(self.columns.shape[:-1]).reshape(-1)
        total = torch.zeros(n, n, dtype=torch.float64, device=self.columns.device)
        for places, piece in self._pieces():
            wide = piece.double()
            total += wide.mT @ (wide * factors[places, None])
        return total

    def _pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the columns in pieces of shape (weights, n), with their places."""
        columns = self.columns.flatten(0, 2)
        entries = PIECE if columns.device.type == "cpu" else PIECE_OF_GPU
        size = max(1, entries // max(columns.shape[1], 1))
        for start in range(0, len(columns), size):
            places = slice(start, start + size)
            yield places, columns[places]


class CoupledInverse:
    """(diag(b) + A^T A)^-1 = diag(1/b) - diag(1/b) A^T (I + A diag(1/b) A^T)^-1 A diag(1/b).

    Args:
        part: A.
        inverse: 1/b, which expands to the shape of the weights, (groups, rows, i); zero where a
            weight does not take part.

    Raises:
        ChitaError: b is so small next to A that rounding makes the system singular.
    """

    def __init__(self, part: GradientPart, inverse: Tensor) -> None:
        self._part, self._inverse = part, inverse
        system = part.gram(inverse)
        system.diagonal().add_(1.0)
        self._factor = definite_factor(system)

    def __call__(self, right: Tensor) -> Tensor:
        """Return the product with a right-hand side, (groups, rows, i)."""
        y = right * self._inverse
        correction = torch.cholesky_solve(self._part.forward(y)[:, None], self._factor)[:, 0]
        return y - self._part.adjoint(correction) * self._inverse
