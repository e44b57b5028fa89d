"""The inverse of H + rho I for one rho after the other.

A Cholesky factorisation and its inverse are fast on a CPU, and slow on a GPU, which waits for each
of their steps. There, the inverse follows from the one before by products alone: with X for the rho
before and d for the increase of rho,

    Y = X - d X^2 + d^2 X^3,        (H + rho I)^-1 = Y + Y (I - (H + rho I) Y)

The first step neglects (d X)^3, and the second one, a step of Newton's method, squares that error.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_GROWTH = 0.15  # of rho; the error is less than its sixth power


class DampedInverse:
    """The inverse of H + rho I.

    Args:
        hessian: H, (groups, i, i), positive semidefinite.
    """

    def __init__(self, hessian: Tensor) -> None:
        self._hessian = hessian
        self._inverse: Tensor | None = None
        self._rho = 0.0

    def at(self, rho: float) -> Tensor:
        """Return the inverse, (groups, i, i), for a positive rho."""
        damped = self._hessian.clone()
        damped.diagonal(dim1=1, dim2=2).add_(rho)
        before, growth = self._inverse, rho - self._rho
        if before is None or not before.is_cuda or not 0 < growth <= LARGEST_GROWTH * self._rho:
            self._inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
        else:
            self._inverse = next_inverse(before, damped, growth)
        self._rho = rho
        return self._inverse


def next_inverse(before: Tensor, damped: Tensor, growth: float) -> Tensor:
    """Return the inverse of a matrix from that of the matrix with a smaller multiple of I.

    Args:
        before: the inverse of `damped` - `growth` I, (groups, i, i).
        damped: the matrix, (groups, i, i).
        growth: d; the product of d and `before` must be small.
    """
    square = before @ before
    near = torch.baddbmm(before, square, before, alpha=growth**2).sub_(square, alpha=growth)
    return torch.baddbmm(near, near, damped @ near, beta=2, alpha=-1)
