"""IHT (algorithm 2) and the backsolve (eq. bs) for all blocks of a batch at once."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.backsolve import damped_solve, rounds_too_much
from chita.solver.blocks.batched_algebra import largest, lower_gram, times
from chita.solver.blocks.batched_problem import BatchedPoint, BatchedProblem
from chita.solver.options import Options
from chita.solver.stepsize import WITHIN, visible_change

PADDED = 1.25  # the most that the largest support of a group exceeds the smallest by, as a factor
SHARE = 4  # a group gathers at most a quarter of the batch's columns, or one block


def batched_backsolve(
    problem: BatchedProblem, x: BatchedPoint, c: Tensor
) -> tuple[BatchedPoint, float]:
    """Replace the points in x by the minimisers on their supports.

    Args:
        problem: the problem of the blocks.
        x: points with the supports.
        c: the residuals when d_S = 0, (b, n).

    Returns:
        The minimisers, and the largest jitter added to a system.
    """
    largest_jitter = 0.0
    for group in alike(problem):
        rows = torch.tensor(group, device=problem.k.device)
        k = max(problem.counts[row] for row in group)
        solved, jitter = _backsolve(problem, x.support[rows, :k], c[rows], rows)
        # On a support that is already solved, the result differs only by rounding: keep the better.
        better = (solved.objective <= x.objective[rows]).nonzero()[:, 0]
        x.put(rows[better], solved.take(better).widened(problem.largest))
        largest_jitter = max(largest_jitter, float(jitter.max()))
    return x, largest_jitter


def alike(problem: BatchedProblem) -> list[list[int]]:
    """Group the blocks with a support by its size; no group has sizes both above and up to n."""
    n, room = problem.offset.shape[1], problem.w0.numel() // SHARE
    groups: list[list[int]] = []
    smallest = 0
    for k, row in sorted((k, row) for row, k in enumerate(problem.counts) if k):
        like = k <= PADDED * smallest and (k > n) == (smallest > n)
        if like and (len(groups[-1]) + 1) * k <= room:
            groups[-1].append(row)
        else:
            groups.append([row])
            smallest = k
    return groups


def _backsolve(
    problem: BatchedProblem, support: Tensor, c: Tensor, rows: Tensor
) -> tuple[BatchedPoint, Tensor]:
    """Return the minimisers for the blocks `rows`, (r,), on supports (r, k) given c, (r, n)."""
    (_, k), n = support.shape, c.shape[1]
    valid = problem.valid[rows, :k]
    columns = problem.flat_columns[support.flatten()].view(*support.shape, n)
    columns[~valid] = 0.0
    if k > n:
        largest = float(columns.square().sum(1).max())
        wide = rounds_too_much(columns.dtype, n, largest, problem.mu)
        exact = columns.double() if wide else columns
        y, jitter = damped_solve(lower_gram(exact), problem.mu, c.to(exact.dtype))
        d = -times(y, exact.mT)
    else:
        exact = columns.double()
        systems = lower_gram(exact.mT)
        # The padding gets a diagonal system of its own, on the scale of the block.
        diagonals = systems.diagonal(dim1=1, dim2=2)
        diagonals.copy_(torch.where(valid, diagonals, diagonals.amax(1, keepdim=True)))
        d, jitter = damped_solve(systems, problem.mu, -times(c.double(), exact.mT))
    d = d.to(c.dtype)
    w = (problem.w0.take(support) + d).masked_fill_(~valid, 0.0)
    return problem.point(rows, support, w, c + times(d, columns)), jitter


class BatchedPath:
    """The paths w(tau) = P_k(w - tau g) from a point of each block, g = grad Q.

    Outside the support w is zero, so |w_j - tau g_j| = tau |g_j|: for every tau, weights outside
    join in the order of their gradients. Therefore P_k swaps the smallest weights on the support
    for those with the largest gradients outside while these are larger, and reads 2 k weights.
    """

    def __init__(self, problem: BatchedProblem, x: BatchedPoint) -> None:
        self.problem, self.x, self.valid = problem, x, problem.valid
        gradient = problem.gradient(x)
        # The highest places come first, because among equals they leave first.
        self.support = self._support_near_zero(gradient)
        self.w = problem.at_places(problem.spread(x.support, x.values), self.support)
        self.g_S = problem.at_places(gradient, self.support)
        self.A_g = problem.combine(self.support, self.g_S, self.valid)
        inside = problem.spread(self.support, self.valid)
        outside = gradient.abs().masked_fill(inside, -torch.inf)
        self.joining = problem.places(largest(outside, problem.largest))
        self.pull = outside.take(self.joining)  # |g| outside, the largest first
        self.g_out = gradient.take(self.joining)
        self.largest = gradient.abs().amax(1).double()

    def _support_near_zero(self, gradient: Tensor) -> Tensor:
        """Return the support of w(tau) for tau -> 0+.

        If w has fewer than k non-zeros, the zeros with the largest gradients join it first.
        """
        support = self.x.support
        if bool(((self.x.values == 0) & self.valid).any()):
            w = self.problem.spread(support, self.x.values)
            growing = torch.where(w != 0, torch.inf, gradient.abs())
            support = self.problem.places(largest(growing, self.problem.largest))
        return support.masked_fill(~self.valid, -1).sort(1, descending=True).values.clamp_min_(0)

    def first_breaking_point(self) -> Tensor:
        """Return tau_c, (b,): the support of w(tau) does not change on [0, tau_c]."""
        outside = self.pull[:, :1].clamp_min(0.0)
        # The rate at which each |w_i| shrinks (a zero grows), and at which those outside catch up.
        shrinking = torch.where(self.w != 0, self.g_S * self.w.sign(), -self.g_S.abs())
        closing = outside + shrinking
        meets = (closing > 0) & self.valid
        return torch.where(meets, self.w.abs() / closing, torch.inf).amin(1).double()

    def first_piece_optimum(self) -> Tensor:
        """Return tau_m, (b,): the minimiser of Q along the first piece, extended without end."""
        square = self.g_S.double().square().sum(1)
        curvature = self.A_g.double().square().sum(1) + self.problem.mu * square
        return torch.where(curvature > 0, square / curvature, 0.0)

    def least_visible_step(self, gamma: float) -> Tensor:
        """Return the least tau, (b,), at which the growth by gamma shows whether Q falls."""
        slope = self.g_S.double().square().sum(1).maximum(self.largest.square())
        fit = self.x.rho.double().square().sum(1) / 2
        rounding = visible_change(self.w.dtype, fit, self.x.objective, gamma)
        return torch.where(slope > 0, rounding / slope, 0.0)

    def at(self, rows: Tensor, tau: Tensor) -> BatchedPoint:
        """Return the points w(tau) of the blocks `rows`, (r,), for their tau, (r,)."""
        step = tau[:, None].to(self.w.dtype)
        moved = self.w[rows] - step * self.g_S[rows]
        smallest = moved.abs().masked_fill(~self.valid[rows], torch.inf).sort(stable=True, dim=1)
        moved = moved.gather(1, smallest.indices)
        leaving = self.support[rows].gather(1, smallest.indices)
        joining, joined, pull = self.joining[rows], -step * self.g_out[rows], step * self.pull[rows]
        tie = (pull == smallest.values) & (joining < leaving)
        swap = (pull > smallest.values) | tie
        # On the old support the residual moves by -tau A_S g_S; the columns that leave it or join
        # it make up the difference.
        rho = self.x.rho[rows] - step * self.A_g[rows]
        rho += self.problem.combine(
            torch.cat([leaving, joining], 1),
            torch.cat([-moved, joined], 1),
            torch.cat([swap, swap], 1),
        )
        support, w = torch.where(swap, joining, leaving), torch.where(swap, joined, moved)
        return self.problem.point(rows, support, w, rho)


def paper_steps(path: BatchedPath, rows: Tensor, gamma: float) -> BatchedPoint:
    """Run algorithm 2 in the blocks `rows`, and return their points.

    The step is the optimum of the first piece. If that lies beyond the piece, the step grows by
    gamma, from the end of the piece or from where Q falls visibly, until Q rises.
    """
    tau_c, tau_m = path.first_breaking_point()[rows], path.first_piece_optimum()[rows]
    end = (WITHIN * tau_c).maximum(path.least_visible_step(gamma)[rows])
    tau = torch.where(tau_m < tau_c, tau_m, end)
    best = path.at(rows, tau)
    growing = (tau_m >= tau_c).nonzero()[:, 0]
    while len(growing):
        tau = gamma * tau
        further = path.at(rows[growing], tau[growing])
        lower = (further.objective < best.objective[growing]).nonzero()[:, 0]
        growing = growing[lower]
        best.put(growing, further.take(lower))
    return best


def batched_iht(
    problem: BatchedProblem, x: BatchedPoint, options: Options
) -> tuple[BatchedPoint, int, bool]:
    """Update each block until Q no longer falls, at most `options.iterations` times.

    Returns:
        The points reached, which replace those in x, the most updates of a block, and whether all
        blocks stopped.
    """
    rows = (problem.k > 0).nonzero()[:, 0]
    updates = 0
    while len(rows) and updates < options.iterations:
        after = paper_steps(BatchedPath(problem, x), rows, options.gamma)
        before = x.objective[rows]
        lower = (after.objective < before).nonzero()[:, 0]
        x.put(rows[lower], after.take(lower))
        # Rounding can make an objective of zero negative; such a block has converged.
        rows = rows[before - after.objective > options.tol * before.clamp_min(0.0)]
        updates += 1
    return x, updates, len(rows) == 0
