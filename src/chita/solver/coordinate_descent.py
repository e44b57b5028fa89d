"""Cyclic coordinate descent on a support, as triangular solves on blocks of columns.

Minimising Q over each coordinate of a block in turn is forward substitution with the lower triangle
of the block's Hessian: one sweep over block b is exactly

    tril(A_b^T A_b + mu I) delta = -grad_b,      rho += A_b delta.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from chita.solver.problem import Iterate, Problem

BLOCK = 128  # columns of a triangular solve: large enough for BLAS, small enough for the cache


class CoordinateDescent:
    """Sweeps over one support; columns and triangles are stored between sweeps."""

    def __init__(self, problem: Problem, support: Tensor) -> None:
        self.problem, self.support = problem, support
        self.columns = problem.matrix.columns(support)
        triangles = [block @ block.t() for block in self._blocks()]
        for triangle in triangles:
            triangle.diagonal().add_(problem.mu)
        # A zero column without ridge does not determine its weight, which keeps its value.
        self.free = [triangle.diagonal() == 0 for triangle in triangles]
        for triangle, free in zip(triangles, self.free, strict=True):
            triangle.diagonal()[free] = 1.0
        self.triangles = triangles

    def _blocks(self) -> Iterator[Tensor]:
        """Yield the columns of the support, (at most BLOCK, n) at a time."""
        for start in range(0, self.columns.p, BLOCK):
            yield self.columns.read(start, min(start + BLOCK, self.columns.p))

    def sweep(self, x: Iterate) -> Iterate:
        """Run one cycle over the support: two passes over A_S. The objective never rises.

        Ranks take turns, because each one starts from the residual of the one before it.
        """
        d = (x.w - self.problem.w0)[self.support]
        rho = x.rho.clone()
        ranks = self.problem.ranks
        for turn in range(ranks.size):
            if turn == ranks.rank:
                self._descend(d, rho)
            rho = ranks.broadcast(rho, turn)
        w = torch.zeros_like(x.w)
        w[self.support] = self.problem.w0[self.support] + d
        objective = self.problem.objective(w, rho)
        return Iterate(w, self.support, rho, objective) if objective < x.objective else x

    def _descend(self, d: Tensor, rho: Tensor) -> None:
        """Minimise over one column of this rank after the other, in place."""
        pieces = torch.split(d, BLOCK) if len(d) else ()
        parts = zip(self._blocks(), self.triangles, self.free, pieces, strict=True)
        for block, triangle, free, d_b in parts:
            gradient = torch.addmv(d_b, block, rho, beta=self.problem.mu)
            gradient[free] = 0.0
            delta = torch.linalg.solve_triangular(triangle, -gradient[:, None], upper=False)[:, 0]
            d_b += delta
            rho.addmv_(block.t(), delta)


def coordinate_descent(problem: Problem, x: Iterate, *, sweeps: int, tol: float) -> list[Iterate]:
    """Run up to `sweeps` cycles on x's support; stop when the objective falls by less than tol."""
    descent = CoordinateDescent(problem, x.support)
    points = []
    for _ in range(sweeps):
        before, x = x, descent.sweep(x)
        points.append(x)
        if before.objective - x.objective <= tol * before.objective:
            break
    return points
