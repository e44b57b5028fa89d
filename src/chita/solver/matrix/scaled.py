"""A in another metric: every column over a scale of its own.

With u = D w and A D^-1 in the places of w and A, problem (main-problem) is the same but for what is
meant by a large weight and by a short way: |u_i| = D_i |w_i| decides what is kept, and the ridge
measures |D d|.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from chita.solver.matrix.gradient_matrix import GradientMatrix


class ScaledMatrix(GradientMatrix):
    """The matrix A D^-1, of which nothing is stored but A and D.

    Args:
        inner: A, wherever it is.
        scale: (p,), the diagonal of D, positive.
    """

    def __init__(self, inner: GradientMatrix, scale: Tensor) -> None:
        super().__init__(inner.n, inner.p, inner.dtype, inner.device, inner.ranks)
        self.inner, self.scale = inner, scale

    @property
    def gathers_fast(self) -> bool:
        return self.inner.gathers_fast

    @property
    def piece(self) -> int:
        return self.inner.piece

    def read(self, start: int, stop: int) -> Tensor:
        return self.inner.read(start, stop) / self.scale[start:stop, None]

    def adjoint(self, r: Tensor) -> Tensor:
        return self.inner.adjoint(r) / self.scale

    def _combine(self, index: Tensor, values: Tensor) -> Tensor:
        return self.inner._combine(index, values / self.scale[index])

    def _all_columns(self, d: Tensor) -> Tensor:
        return self.inner._all_columns(d / self.scale)

    def chunks(self, index: Tensor) -> Iterator[Tensor]:
        done = 0
        for chunk in self.inner.chunks(index):
            yield chunk / self.scale[index[done : done + len(chunk)], None]
            done += len(chunk)

    def columns(self, index: Tensor) -> ScaledMatrix:
        return ScaledMatrix(self.inner.columns(index), self.scale[index])

    def widen(self, part: GradientMatrix, index: Tensor, wider: Tensor) -> ScaledMatrix:
        assert isinstance(part, ScaledMatrix)
        return ScaledMatrix(self.inner.widen(part.inner, index, wider), self.scale[wider])
