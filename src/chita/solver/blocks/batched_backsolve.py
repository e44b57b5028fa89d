"""The exact minimisers on the supports (eq. bs) of all blocks of a batch at once.

What `backsolve.py` does for one problem, for many: blocks whose supports have about the same size
are solved together, padded with zero columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.backsolve import rounds_too_much
from chita.solver.blocks.batched_algebra import damped_solve, lower_gram, times
from chita.solver.blocks.batched_problem import BatchedPoint, BatchedProblem

PADDED = 1.25  # the largest support of a group is at most this many times the smallest
SHARE = 4  # a group gathers at most one column in this many of the batch, or one block


def batched_backsolve(
    problem: BatchedProblem, x: BatchedPoint, c: Tensor
) -> tuple[BatchedPoint, float]:
    """The minimisers on the supports of x, which take the place of the points in x.

    Args:
        problem: that of the blocks.
        x: points with the supports.
        c: the residuals when d_S = 0, (b, n).

    Returns:
        The minimisers, and the largest jitter that one needed.
    """
    largest_jitter = 0.0
    for group in alike(problem):
        rows = torch.tensor(group, device=problem.k.device)
        k = max(problem.counts[row] for row in group)
        solved, jitter = _backsolve(problem, x.support[rows, :k], c[rows], rows)
        # On a support that is solved already the answer differs by rounding alone: keep the better.
        better = (solved.objective <= x.objective[rows]).nonzero()[:, 0]
        x.put(rows[better], solved.take(better).widened(problem.largest))
        largest_jitter = max(largest_jitter, float(jitter.max()))
    return x, largest_jitter


def alike(problem: BatchedProblem) -> list[list[int]]:
    """The blocks that keep anything in groups of similar supports, all larger than n or none."""
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
    """The minimisers for the blocks `rows`, (r,), on supports (r, k) given c, (r, n)."""
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
        # A system of its own for the padding, of no other scale than the block's.
        diagonals = systems.diagonal(dim1=1, dim2=2)
        diagonals.copy_(torch.where(valid, diagonals, diagonals.amax(1, keepdim=True)))
        d, jitter = damped_solve(systems, problem.mu, -times(c.double(), exact.mT))
    d = d.to(c.dtype)
    w = (problem.w0.take(support) + d).masked_fill_(~valid, 0.0)
    return problem.point(rows, support, w, c + times(d, columns)), jitter
