"""A scaled: by column for another metric, or as a whole against underflow and overflow."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from chita.solver.matrix.gradient_matrix import ORDINARY, GradientMatrix


class WrappedMatrix(GradientMatrix):
    """A matrix that reads another one, in any storage, and changes its columns.

    Args:
        inner: A, in any storage.
    """

    def __init__(self, inner: GradientMatrix) -> None:
        super().__init__(inner.n, inner.p, inner.dtype, inner.device, inner.ranks)
        self.inner = inner

    @property
    def gathers_fast(self) -> bool:
        return self.inner.gathers_fast

    @property
    def piece(self) -> int:
        return self.inner.piece


class ScaledMatrix(WrappedMatrix):
    """The matrix A D^-1, of which only A and D are stored.

    Args:
        inner: A, in any storage.
        scale: (p,), the diagonal of D, positive.
    """

    def __init__(self, inner: GradientMatrix, scale: Tensor) -> None:
        super().__init__(inner)
        self.scale = scale

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


# A float32 factor is at most 2^126; those above 2^1000 are not needed in float64 either.
LARGEST_EXPONENT = {torch.float32: 126, torch.float64: 1000}


class RescaledMatrix(WrappedMatrix):
    """The matrix s A, of which only A is stored.

    Every product reads the scaled columns: a product with A itself, scaled afterwards, could
    underflow or overflow before the factor is applied.

    Args:
        inner: A, in any storage.
        factor: s, a power of two, so that the scaling is exact.
    """

    def __init__(self, inner: GradientMatrix, factor: float) -> None:
        super().__init__(inner)
        self.factor = factor

    def read(self, start: int, stop: int) -> Tensor:
        return self.inner.read(start, stop) * self.factor

    def chunks(self, index: Tensor) -> Iterator[Tensor]:
        for chunk in self.inner.chunks(index):
            yield chunk * self.factor

    def columns(self, index: Tensor) -> RescaledMatrix:
        return RescaledMatrix(self.inner.columns(index), self.factor)

    def widen(self, part: GradientMatrix, index: Tensor, wider: Tensor) -> RescaledMatrix:
        assert isinstance(part, RescaledMatrix)
        return RescaledMatrix(self.inner.widen(part.inner, index, wider), self.factor)


def ordinary(matrix: GradientMatrix, beside: float = 0.0) -> tuple[GradientMatrix, float]:
    """Return s A and s, where s times the larger of max |a_ij| and `beside` is in [1/2, 1).

    s is 1, and the matrix is A itself, if that is already ordinary or A is zero.

    Args:
        matrix: A.
        beside: another scale of the products, sqrt(mu); s never makes its square underflow.
    """
    largest = matrix.largest_entry()
    size = max(largest, beside)
    if largest == 0 or not math.isfinite(size) or ORDINARY[0] <= size <= ORDINARY[1]:
        return matrix, 1.0
    most = LARGEST_EXPONENT[matrix.dtype]
    exponent = min(-math.frexp(size)[1], most)
    if beside > 0:
        exponent = max(exponent, 1 - most // 2 - math.frexp(beside)[1])
    return RescaledMatrix(matrix, 2.0**exponent), 2.0**exponent
