"""The curvature of a layer in units in which H has the diagonal 1, as ADMM uses it.

The units do not depend on the gradients. Because gradients are few, the remaining weights can
compensate for a removed one in their directions, and H alone determines the cost of its removal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from chita.solver.layer_wise.damped_inverse import DampedInverse
from chita.solver.layer_wise.gradient_part import CoupledInverse, GradientPart
from chita.solver.layer_wise.layer import Layer

Step = Callable[[Tensor, Tensor], Tensor]  # of the dense copy X in ADMM (`admm.py`)


@dataclass(frozen=True)
class ScaledCurvature:
    """I (x) H, with H scaled to the diagonal 1.

    Attributes:
        w0: W0 in these units, (groups, rows, i).
        hessian: H in these units, (groups, i, i).
        scale: what weights are multiplied with, (groups, 1, i).
    """

    w0: Tensor
    hessian: Tensor
    scale: Tensor

    def descent(self, x: Tensor) -> Tensor:
        """Return -grad Q at x, (groups, rows, i)."""
        return (self.w0 - x) @ self.hessian

    def step(self, rho: float) -> Step:
        """Return the function of d and v: v + rho d (H + rho I)^-1."""
        inverse = rho * self._inverses.at(rho)
        return lambda d, v: torch.baddbmm(v, d, inverse)

    @cached_property
    def _inverses(self) -> DampedInverse:
        return DampedInverse(self.hessian)


@dataclass(frozen=True)
class CoupledCurvature(ScaledCurvature):
    """I (x) H + A^T A, with H scaled to the diagonal 1.

    In the basis of the eigenvectors of H, H + rho I is diagonal for every rho, and A is transformed
    only once.

    Attributes:
        gradients: A and c, not scaled.
    """

    gradients: GradientPart

    def descent(self, x: Tensor) -> Tensor:
        residual = self.gradients.residual((x - self.w0) / self.scale)
        return super().descent(x) - self.gradients.adjoint(residual) / self.scale

    def step(self, rho: float) -> Step:
        """Return the function of d and v: v + (rho d - g) (I (x) H + A^T A + rho I)^-1.

        The gradient g of Q at W0 is zero without gradients of the loss.
        """
        values, vectors, rotated = self._rotated
        coupled = CoupledInverse(rotated, 1 / (values + rho))
        return lambda d, v: v + coupled((rho * d + self._slope) @ vectors) @ vectors.mT

    @cached_property
    def _slope(self) -> Tensor:
        return self.descent(self.w0)

    @cached_property
    def _rotated(self) -> tuple[Tensor, Tensor, GradientPart]:
        """The eigenvalues of H, (groups, 1, i), its eigenvectors, and A in their basis."""
        values, vectors = torch.linalg.eigh(self.hessian)
        turn = (vectors / self.scale.mT).mT[:, None]  # Q^T diag(1 / scale)
        rotated = GradientPart(turn @ self.gradients.columns, self.gradients.offset)
        return values.clamp_min(0.0)[:, None], vectors, rotated


def scaled_curvature(layer: Layer) -> ScaledCurvature:
    """Return the curvature of a layer in units in which H has the diagonal 1.

    Raises:
        ChitaError: there are gradients, and H is singular, as without inputs and without a ridge.
    """
    if layer.gradients is not None:
        layer.check_definite()
    scale = layer.diagonal.sqrt()
    w0, hessian = layer.w0 * scale, layer.products / (scale.mT * scale)
    if layer.gradients is None:
        return ScaledCurvature(w0, hessian, scale)
    return CoupledCurvature(w0, hessian, scale, layer.gradients)
