"""The normal equations of a layer on a support, as conjugate gradients use them.

Without gradients the rows of a layer are independent systems, which are solved at once with a step
length of their own. Gradients couple all rows to one system.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from chita.solver.layer_wise.gradient_part import CoupledInverse, GradientPart
from chita.solver.layer_wise.layer import Layer


class System(Protocol):
    """A positive definite system over the weights of a support, with a preconditioner."""

    def product(self, y: Tensor) -> Tensor:
        """Return the product with y, (groups, rows, i), which is zero outside the support."""

    def conditioned(self, residual: Tensor) -> Tensor:
        """Return the product of the preconditioner with a residual, (groups, rows, i)."""

    def total(self, x: Tensor) -> Tensor:
        """Return the sum of x over the weights of each independent system."""

    def of(self, rows: Tensor) -> System:
        """Return the system of some rows, (groups, rows, 1), without the other ones."""


class IndependentRows:
    """H_SS for each row, preconditioned by the diagonal of H.

    Args:
        hessian: H, (groups, i, i).
        mask: the support of each row, (groups, rows, i).
    """

    def __init__(self, hessian: Tensor, mask: Tensor) -> None:
        self._hessian, self._mask = hessian, mask
        self._inverse = 1 / hessian.diagonal(dim1=1, dim2=2)[:, None]

    def product(self, y: Tensor) -> Tensor:
        return (y @ self._hessian).mul_(self._mask)

    def conditioned(self, residual: Tensor) -> Tensor:
        return residual * self._inverse

    def total(self, x: Tensor) -> Tensor:
        return x.sum(-1, keepdim=True)

    def of(self, rows: Tensor) -> System:
        return IndependentRows(self._hessian, rows_of(self._mask, rows))


class CoupledRows:
    """I (x) H + A^T A on the support, preconditioned by the same with the diagonal of H.

    With the diagonal alone, conjugate gradients would need a step for each row of A.

    Args:
        hessian: H, (groups, i, i).
        mask: the support, (groups, rows, i).
        gradients: A.
    """

    def __init__(self, hessian: Tensor, mask: Tensor, gradients: GradientPart) -> None:
        self._hessian, self._mask, self._gradients = hessian, mask, gradients
        inverse = 1 / hessian.diagonal(dim1=1, dim2=2)[:, None]
        self._coupled = CoupledInverse(gradients, (mask * inverse).to(gradients.columns.dtype))

    def product(self, y: Tensor) -> Tensor:
        coupled = self._gradients.adjoint(self._gradients.forward(y))
        return (y @ self._hessian).add_(coupled).mul_(self._mask)

    def conditioned(self, residual: Tensor) -> Tensor:
        return self._coupled(residual)

    def total(self, x: Tensor) -> Tensor:
        return x.sum().view(1, 1, 1)

    def of(self, rows: Tensor) -> System:
        return self  # all rows form one system


def rows_of(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows, (groups, rows, 1), of x, (groups, all rows, i)."""
    return x.take_along_dim(rows, dim=1)


def system_of(layer: Layer, mask: Tensor, dtype: torch.dtype | None = None) -> System:
    """Return the system of a layer on a support, in the type of the weights by default."""
    hessian = layer.products if dtype is None else layer.hessian.to(dtype)
    if layer.gradients is None:
        return IndependentRows(hessian, mask)
    return CoupledRows(hessian, mask, layer.gradients)
