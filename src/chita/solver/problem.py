"""Problem (main-problem) of the paper in the displacement d = w - w0, and a point of it.

    Q(w) = 1/2 |A d + c|^2 + (mu/2) |d|^2        subject to |w|_0 <= k,   mu = n lambda

with c = alpha e, the scaled first-order term. Everything is expressed through one residual,
rho = A d + c in R^n. This avoids cancellation, and products with A need only this vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.constraints.constraint import ANY_SUPPORT, AnySupport, Constraint, keep
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.scaled import ordinary
from chita.solver.ranks import Ranks

NOT_SHARED = (
    "limits and patterns of supports need all columns in one process, but {} ranks share them; run "
    "one process"
)
PIECE = 1 << 20  # entries of a vector that stay in the cache


@dataclass(frozen=True)
class Iterate:
    """A feasible point: the weights, their support of size k, and their residual.

    If ranks share the columns, w and the support are this rank's part.
    """

    w: Tensor  # (p,), zero outside the support
    support: Tensor  # (k,), sorted
    rho: Tensor  # (n,), the residual A d + c
    objective: float


@dataclass(frozen=True)
class Problem:
    """The l0-constrained ridge regression, possibly with some weights held fixed.

    Attributes:
        matrix: A, n x p.
        w0: the trained weights, (p,).
        mu: n lambda, the strength of the ridge.
        offset: c, (n,): alpha e, plus the residual of weights held fixed.
        constant: the objective of weights held fixed.
        constraint: the allowed supports.
        moments: for each layer the mean of x x^T over its inputs x, (groups, i, i), for methods
            that use them instead of A; restrictions do not carry them.
    """

    matrix: GradientMatrix
    w0: Tensor
    mu: float
    offset: Tensor
    constant: float = 0.0
    constraint: Constraint = ANY_SUPPORT
    moments: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        if self.ranks.size > 1 and not isinstance(self.constraint, AnySupport):
            raise ChitaError(NOT_SHARED.format(self.ranks.size))

    @classmethod
    def build(
        cls,
        matrix: GradientMatrix,
        w0: Tensor,
        *,
        lam: float,
        alpha: float | Tensor,
        constraint: Constraint = ANY_SUPPORT,
        moments: tuple[Tensor, ...] = (),
    ) -> Problem:
        """Build problem (main-problem) with ridge lambda and c = alpha e, or c = alpha, (n,)."""
        offset = w0.new_ones(matrix.n) * alpha
        n = 1 if moments else matrix.n  # moments are means over the samples, A^T A is a sum
        return cls(matrix, w0, n * lam, offset, constraint=constraint, moments=moments)

    @property
    def ranks(self) -> Ranks:
        """The ranks that share the columns."""
        return self.matrix.ranks

    @property
    def p(self) -> int:
        """The number of columns of all ranks."""
        return self.ranks.total(self.matrix.p)

    def kept(self, x: Iterate) -> int:
        """Return k, the size of the support of x over all ranks."""
        return self.ranks.total(len(x.support))

    def objective(self, w: Tensor, rho: Tensor) -> float:
        """Return Q(w), summed in float64, given its residual."""
        own = square_distance(w, self.w0) * (self.mu / 2)
        if self.ranks.rank == 0:  # all ranks use the same sum, so they take the same branches
            own = own + rho.double().square().sum() / 2
        return float(self.ranks.sum(own)) + self.constant

    def at(self, w: Tensor, support: Tensor) -> Iterate:
        """Return the point w with a freshly computed residual: a pass over the changed columns."""
        rho = self.matrix.forward(w - self.w0) + self.offset
        return Iterate(w, support, rho, self.objective(w, rho))

    def largest(self, x: Tensor, k: int) -> Tensor:
        """Return I_k(x) under the constraint, sorted."""
        return self.constraint.largest(x, k, self.ranks)

    def project(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return P_k(x) under the constraint, and I_k(x)."""
        return self.constraint.project(x, k, self.ranks)

    def start(self, k: int) -> Iterate:
        """Return P_k(w0), the starting point of every method."""
        return self.at(*self.project(self.w0, k))

    def unmoved(self, support: Tensor) -> Iterate:
        """Return w0 on a support and zero elsewhere."""
        return self.at(keep(self.w0, support), support)

    def gradient(self, x: Iterate) -> Tensor:
        """Return grad Q = A^T rho + mu d, shape (p,): one pass over A."""
        return self.matrix.adjoint(x.rho).add_(x.w - self.w0, alpha=self.mu)

    def in_ordinary_units(self) -> tuple[Problem, float]:
        """Return the problem in units that neither underflow nor overflow, and the scale s.

        With s A, s c, s^2 mu and s^2 M instead of A, c, mu and the moments M of the layers, the
        problem has the same solutions and the objective s^2 Q. Because s is a power of two, the
        solvers give the same bits, except where one of the two units underflows or overflows. The
        larger of A and sqrt(mu) sets the units: entries that underflow next to it do not matter. If
        both are ordinary, this is the problem itself, and s is 1.
        """
        matrix, s = ordinary(self.matrix, self.mu**0.5)
        if s == 1:
            return self, s
        scaled = replace(
            self,
            matrix=matrix,
            mu=self.mu * s * s,
            offset=self.offset * s,
            constant=self.constant * s * s,
            moments=tuple(moment * (s * s) for moment in self.moments),
        )
        return scaled, s

    def restrict(self, index: Tensor, columns: GradientMatrix, x: Iterate) -> Problem:
        """Return the problem over the `columns` at `index` only, with all others fixed as in x."""
        w, w0 = x.w[index], self.w0[index]
        offset = x.rho - columns.forward(w - w0)
        outside = square_distance(x.w, self.w0) - square_distance(w, w0)
        still = float(self.ranks.sum(outside))
        constant = self.constant + still * self.mu / 2
        rule = self.constraint.restrict(index)
        return Problem(columns, w0, self.mu, offset, constant, rule)

    def drop(self, index: Tensor, x: Iterate) -> Iterate:
        """Convert a point to the restriction to `index`, a sorted superset of its support."""
        return Iterate(x.w[index], torch.searchsorted(index, x.support), x.rho, x.objective)

    def lift(self, index: Tensor, x: Iterate) -> Iterate:
        """Convert a point of the restriction to `index` to this problem: no pass over A."""
        w = torch.zeros_like(self.w0)
        w[index] = x.w
        return Iterate(w, index[x.support], x.rho, x.objective)


def square_distance(w: Tensor, w0: Tensor) -> Tensor:
    """Return |w - w0|^2 in float64, computed in pieces to avoid a large float64 copy."""
    pieces = zip(torch.split(w, PIECE), torch.split(w0, PIECE), strict=True)
    return torch.stack([(one - other).double().square().sum() for one, other in pieces]).sum()
