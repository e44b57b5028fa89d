"""How far to go along the gradient: algorithm 2, and 1/L and backtracking for comparison.

An IHT update moves along the path w(tau) = P_k(w - tau grad Q). On it, Q is piecewise quadratic in
tau: while tau is small the support stays (the first piece), and there everything has a closed form.
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

# At tau_c itself two weights are equal and rounding picks one; a step this much shorter is still on
# the first piece, in float32 too.
WITHIN = 1 - 1e-5
SEEN = 4.0  # a change of Q by this many times its rounding is real
SHRINK = 0.5  # backtracking: the factor by which a step that does not pay is cut
SMALLEST = 2.0**-40  # and the share of the first step at which the search gives up


class Path:
    """The path w(tau) = P_k(w - tau g) from a point x, g = grad Q(x).

    Making it costs one pass over A_S; a point on it costs one pass over the columns that enter or
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
        """The support of w(tau) for tau -> 0+. Where w has fewer than k non-zeros, the zeros with
        the largest gradient are the first to grow."""
        if self.ranks.all(bool((self.x.w[self.x.support] != 0).all())):
            return self.x.support
        return self.problem.largest(torch.where(self.x.w != 0, torch.inf, self.g), self.k)

    def first_breaking_point(self) -> float:
        """tau_c: the support of w(tau) does not change on [0, tau_c]."""
        return self.problem.constraint.breaking_point(self.x.w, self.g, self.support, self.ranks)

    @cached_property
    def _squares(self) -> tuple[float, float, float]:
        """|g_S|^2, |A_S g_S|^2 and |rho|^2."""
        parts = self.g_S, self.A_g, self.x.rho
        squares = torch.stack([part.double().square().sum() for part in parts])
        if self.ranks.rank > 0:  # one sum for all, so that all ranks take the same branches
            squares[1:] = 0.0
        square, image, residual = self.ranks.sum(squares).tolist()
        return square, image, residual

    def first_piece_optimum(self) -> float:
        """tau_m: the minimiser of Q along the first piece, were it to go on for ever."""
        square, image, _ = self._squares
        curvature = image + self.problem.mu * square
        return square / curvature if curvature > 0 else 0.0

    def least_visible_step(self, gamma: float) -> float:
        """Return the least tau beyond tau_c for which Q at tau and at gamma tau tell a fall of Q.

        At a smaller tau, the differences are rounding. Near x, Q falls at least by tau |g_S|^2 on
        the support, and beyond tau_c by tau M^2, M being the largest |g_j|: j has joined by then.
        """
        square, _, residual = self._squares
        largest = float(self.ranks.max(largest_magnitude(self.g)))
        slope = max(square, largest * largest)
        rounding = visible_change(self.g.dtype, residual / 2, self.x.objective, gamma)
        return rounding / slope if slope > 0 else 0.0

    def at(self, tau: float) -> Iterate:
        """The point w(tau), its residual updated from x's."""
        moved = self.x.w - tau * self.g
        w, support = self.problem.project(moved, self.k)
        inside = torch.zeros_like(self.inside)
        inside[support] = True
        # On the old support the residual moves by -tau A_S g_S; the columns that left it or joined
        # it make up the difference.
        changed = (inside ^ self.inside).nonzero().squeeze(1)
        before = torch.where(self.inside[changed], moved[changed], self.x.w[changed])
        rho = self.x.rho - tau * self.A_g
        rho += self.problem.matrix.combine(changed, w[changed] - before)
        return Iterate(w, support, rho, self.problem.objective(w, rho))


def visible_change(dtype: torch.dtype, fit: Number, objective: Number, gamma: float) -> Number:
    """Return how much Q must fall by tau so that the growth to gamma tau is more than rounding.

    Args:
        dtype: that the residual is rounded to.
        fit: |rho|^2 / 2.
        objective: Q, which is summed in float64.
        gamma: the growth of tau.
    """
    rounding = torch.finfo(dtype).eps * fit + torch.finfo(torch.float64).eps * objective
    return rounding * (SEEN / min(gamma - 1, 1.0))


StepRule = Callable[[Path], Iterate]


def paper_step(gamma: float) -> StepRule:
    """Algorithm 2: the optimum of the first piece, or growth by gamma from its end.

    tau_c is tiny if a weight is nearly zero or the gradient is huge. Q at tau_c is then Q at x to
    rounding, and the growth starts where Q can be seen to fall.
    """

    def step(path: Path) -> Iterate:
        tau_c, tau_m = path.first_breaking_point(), path.first_piece_optimum()
        if tau_m < tau_c:
            return path.at(tau_m)
        return grow(path, max(WITHIN * tau_c, path.least_visible_step(gamma)), gamma)

    return step


def grow(path: Path, tau: float, gamma: float) -> Iterate:
    """The last point of tau, gamma tau, gamma^2 tau, ... before Q rises."""
    best = path.at(tau)
    while (further := path.at(tau := gamma * tau)).objective < best.objective:
        best = further
    return best


def shrink(path: Path, tau: float) -> float:
    """The first of tau, tau/2, tau/4, ... that lowers Q sufficiently."""
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


def lipschitz_step(problem: Problem, rounds: int = 30) -> StepRule:
    """tau = 1/L with L = mu + |A|_2^2, by power iteration."""
    v = problem.w0.new_ones(problem.matrix.n)
    for _ in range(rounds):
        v = problem.matrix.forward(problem.matrix.adjoint(v / v.norm().clamp_min(1e-30)))
    lipschitz = problem.mu + float(v.norm())
    return lambda path: path.at(1 / lipschitz if lipschitz > 0 else 0.0)
