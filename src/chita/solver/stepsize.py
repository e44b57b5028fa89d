"""Step sizes along the gradient: algorithm 2, and for comparison 1/L and backtracking.

An IHT update moves along the path w(tau) = P_k(w - tau grad Q), on which Q is piecewise quadratic
in tau. On the first piece, for small tau, the support does not change and there are closed forms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from chita.solver.matrix.gradient_matrix import largest_magnitude
from chita.solver.problem import Iterate, Problem, square_distance

Number = TypeVar("Number", float, Tensor)

# At tau_c two weights are equal and rounding decides between them. A step shorter by this factor is
# on the first piece, also in float32.
WITHIN = 1 - 1e-5
SEEN = 4.0  # a change of Q is visible if it is this many times the rounding error
SHRINK = 0.5  # the factor by which backtracking shortens a step
SMALLEST = 2.0**-40  # the fraction of the first step at which backtracking stops
POWER_ITERATIONS = 30  # to estimate |A|_2


class Path:
    """The path w(tau) = P_k(w - tau g) from a point x, g = grad Q(x).

    Building it costs one pass over A_S. A point on it costs one pass over the columns that enter or
    leave the support between x and that point.
    """

    def __init__(self, problem: Problem, x: Iterate, k: int) -> None:
        self.problem, self.x, self.k, self.ranks = problem, x, k, problem.ranks
        self.g = problem.gradient(x)
        self.support = self._support_near_zero()
        self.g_S = self.g[self.support]
        self.A_g = problem.matrix.combine(self.support, self.g_S)
        self.inside = torch.zeros_like(x.w, dtype=torch.bool)
        self.inside[self.support] = True

    def _support_near_zero(self) -> Tensor:
        """Return the support of w(tau) for tau -> 0+.

        If w has fewer than k non-zeros, the zeros with the largest gradients join it first.
        """
        if self.ranks.all(bool((self.x.w[self.x.support] != 0).all())):
            return self.x.support
        return self.problem.largest(torch.where(self.x.w != 0, torch.inf, self.g), self.k)

    def first_breaking_point(self) -> float:
        """Return tau_c: the support of w(tau) does not change on [0, tau_c]."""
        return self.problem.constraint.breaking_point(self.x.w, self.g, self.support, self.ranks)

    @cached_property
    def _squares(self) -> tuple[float, float, float]:
        """|g_S|^2, |A_S g_S|^2 and |rho|^2."""
        parts = self.g_S, self.A_g, self.x.rho
        squares = torch.stack([part.double().square().sum() for part in parts])
        if self.ranks.rank > 0:  # all ranks use the same sum, so they take the same branches
            squares[1:] = 0.0
        square, image, residual = self.ranks.sum(squares).tolist()
        return square, image, residual

    def first_piece_optimum(self) -> float:
        """Return tau_m: the minimiser of Q along the first piece, extended without end."""
        square, image, _ = self._squares
        curvature = image + self.problem.mu * square
        return square / curvature if curvature > 0 else 0.0

    def least_visible_step(self, gamma: float) -> float:
        """Return the least tau beyond tau_c at which a fall of Q from tau to gamma tau is visible.

        For a smaller tau, the difference is rounding. Near x, Q falls at least by tau |g_S|^2 on
        the support, and beyond tau_c by tau M^2, where M is the largest |g_j|, which has joined.
        """
        square, _, residual = self._squares
        largest = float(self.ranks.max(largest_magnitude(self.g)))
        slope = max(square, largest * largest)
        rounding = visible_change(self.g.dtype, residual / 2, self.x.objective, gamma)
        return rounding / slope if slope > 0 else 0.0

    def at(self, tau: float) -> Iterate:
        """Return the point w(tau), with a residual updated from that of x."""
        moved = self.x.w - tau * self.g
        w, support = self.problem.project(moved, self.k)
        inside = torch.zeros_like(self.inside)
        inside[support] = True
        # On the old support the residual changes by -tau A_S g_S; the columns that leave or join
        # the support account for the rest.
        changed = (inside ^ self.inside).nonzero().squeeze(1)
        before = torch.where(self.inside[changed], moved[changed], self.x.w[changed])
        rho = self.x.rho - tau * self.A_g
        rho += self.problem.matrix.combine(changed, w[changed] - before)
        return Iterate(w, support, rho, self.problem.objective(w, rho))


def visible_change(dtype: torch.dtype, fit: Number, objective: Number, gamma: float) -> Number:
    """Return the fall of Q at tau above which its change at gamma tau exceeds rounding errors.

    Args:
        dtype: the type of the residual.
        fit: |rho|^2 / 2.
        objective: Q, which is summed in float64.
        gamma: the growth factor of tau.
    """
    rounding = torch.finfo(dtype).eps * fit + torch.finfo(torch.float64).eps * objective
    return rounding * (SEEN / min(gamma - 1, 1.0))


StepRule = Callable[[Path], Iterate]


def paper_step(gamma: float) -> StepRule:
    """Return algorithm 2: the optimum of the first piece, or growth by gamma from its end.

    tau_c is tiny if a weight is nearly zero or the gradient is huge. Then Q at tau_c equals Q at x
    up to rounding, and the growth starts where Q falls visibly.
    """

    def step(path: Path) -> Iterate:
        tau_c, tau_m = path.first_breaking_point(), path.first_piece_optimum()
        if tau_m < tau_c:
            return path.at(tau_m)
        return grow(path, max(WITHIN * tau_c, path.least_visible_step(gamma)), gamma)

    return step


def grow(path: Path, tau: float, gamma: float) -> Iterate:
    """Return the last point of tau, gamma tau, gamma^2 tau, ... before Q rises."""
    best = path.at(tau)
    while (further := path.at(tau := gamma * tau)).objective < best.objective:
        best = further
    return best


def shrink(path: Path, tau: float) -> float:
    """Return the first of tau, tau/2, tau/4, ... that lowers Q sufficiently."""
    smallest = tau * SMALLEST
    while tau > smallest:
        point = path.at(tau)
        moved = float(path.ranks.sum(square_distance(point.w, path.x.w)))
        if point.objective < path.x.objective - 1e-4 * moved / tau:
            return tau
        tau *= SHRINK
    return smallest


def backtracking_step(path: Path) -> Iterate:
    """Start far beyond the optimum of the first piece and halve until Q falls sufficiently."""
    return path.at(shrink(path, 64 * path.first_piece_optimum()))


def lipschitz_step(problem: Problem) -> StepRule:
    """Return the step tau = 1/L with L = mu + |A|_2^2, by power iteration."""
    v = problem.w0.new_ones(problem.matrix.n)
    for _ in range(POWER_ITERATIONS):
        v = problem.matrix.forward(problem.matrix.adjoint(v / v.norm().clamp_min(1e-30)))
    lipschitz = problem.mu + float(v.norm())
    return lambda path: path.at(1 / lipschitz if lipschitz > 0 else 0.0)
