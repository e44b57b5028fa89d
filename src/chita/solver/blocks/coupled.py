"""Blocks that talk: coordinate descent over blocks on the global problem.

Not in the paper, whose blocks (algorithm 6) are solved apart, each as if all others stayed at w0.
From where that ends, blocks share one residual rho = A d + c here. Batches of them take turns:

1. Every block of the batch is solved by itself, all others held where they are now. It would go
   from w_B to w_B + e_B, and move rho by A_B e_B.
2. All of them go together, block B to w_B + t_B e_B. The steps t minimise the global Q: a ridge
   regression with one weight for each block of the batch.

While the supports stay, Q cannot rise, as t = 0 is a choice; and because Q is convex and t = 1/b
for each of b blocks is another, it falls by at least the mean of what each block alone would gain.
Where a change of supports makes Q rise, the batch keeps its supports and moves its weights.

From P_k(w0) the first blocks would make up for all that was pruned, and move far; blocks apart
have each made up for their own. A sweep, in which every block has its turn, is one pass over A.
Ranks take their turns at the same time, as if their batches were one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from chita.solver.backsolve import backsolve
from chita.solver.blocks.batch import BlockBatch
from chita.solver.blocks.batched_algebra import times
from chita.solver.blocks.batched_problem import BatchedProblem
from chita.solver.blocks.independent import BatchSolver
from chita.solver.matrix.held import HeldMatrix
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.ranks import Ranks

# Of the columns, that a batch has at most. In smaller ones the first blocks do most of the work; in
# larger ones too many change their supports for the same reason, so that none may.
SHARE = 1 / 4

# How blocks are solved: the supports and the weights, or on supports that stay the weights alone.
Rules = tuple[BatchSolver, BatchSolver]


class Standing(NamedTuple):
    """Where the b blocks of a batch are."""

    kept: Tensor  # (b, B) bool, the supports
    w: Tensor  # (b, B), the weights
    own: Tensor  # (b, n), A_B (w_B - w0_B) in float64

    def moved(self, t: Tensor, e: Tensor, image: Tensor) -> Standing:
        """Block B moved by t_B e_B; t is (b,), e (b, B) and its image A_B e_B (b, n)."""
        step = t[:, None]
        return Standing(self.kept, self.w + (step * e).to(self.w.dtype), self.own + step * image)


def solve_coupled(
    problem: Problem,
    x: Iterate,
    batches: Sequence[BlockBatch],
    rules: Rules,
    options: Options,
    trace: Trace,
) -> tuple[Iterate, bool]:
    """Sweeps over all blocks from their solution apart, x, until Q settles or they are spent.

    Returns the point reached, its residual computed afresh, and whether every block converged.
    """
    settled = True
    trace.history.append(x.objective)
    for _ in range(options.block_sweeps):
        before = x.objective
        after, settled = sweep(problem, x, batches, rules, trace)
        if not after.objective < before:
            break
        x = after
        trace.history.append(x.objective)
        if before - x.objective <= options.tol * before:
            break
    return x, settled


def sweep(
    problem: Problem, x: Iterate, batches: Sequence[BlockBatch], rules: Rules, trace: Trace
) -> tuple[Iterate, bool]:
    """A turn for every block: one pass over A."""
    matrix, w0, ranks = problem.matrix, problem.w0, problem.ranks
    w, kept = x.w.clone(), torch.zeros_like(w0, dtype=torch.bool).index_fill_(0, x.support, True)
    rho, afresh, settled = x.rho.double(), problem.offset.double(), True
    for batch in _rounds(batches, ranks):
        columns, place = matrix.read(batch.start, batch.stop), slice(batch.start, batch.stop)
        columns, own_w0, own_w = batch.stack_own(columns), batch.stack(w0), batch.stack(w)
        own = times(own_w - own_w0, columns).double()
        now = Standing(batch.stack(kept), own_w, own)
        part = BatchedProblem(
            columns,
            own_w0,
            kept=now.kept,
            mu=problem.mu,
            offset=(rho - own).to(w0.dtype),
            constraint=problem.constraint.block(batch.start, batch.stop, kept[place]),
        )
        after, done = _turn(problem, part, now, rho, rules, trace)
        w[place], kept[place] = batch.unstack(after.w), batch.unstack(after.kept)
        change, total = ranks.sum(torch.stack([(after.own - own).sum(0), after.own.sum(0)]))
        # What is added up afresh takes the place of what many changes have rounded.
        rho, afresh, settled = rho + change, afresh + total, settled and done
        del part, columns  # which may make room for the next ones
    rho = afresh.to(w0.dtype)
    support = kept.nonzero()[:, 0]
    return Iterate(w, support, rho, problem.objective(w, rho)), ranks.all(settled)


def _rounds(batches: Sequence[BlockBatch], ranks: Ranks) -> Iterator[BlockBatch]:
    """The batches, and as many of no blocks as it takes to have as many turns as any rank."""
    rounds = int(ranks.max(torch.tensor(len(batches))))
    yield from batches
    yield from [BlockBatch(())] * (rounds - len(batches))


def _turn(
    problem: Problem, part: BatchedProblem, now: Standing, rho: Tensor, rules: Rules, trace: Trace
) -> tuple[Standing, bool]:
    """Where the blocks go, given the global residual, and whether each by itself has converged."""
    of_batch = replace(problem, w0=part.w0)  # Q but for the ridge of all others
    before, done = of_batch.objective(now.w, rho), True
    for solve in rules:
        x = part.at(now.w, part.offset + now.own.to(part.offset.dtype))
        solved = solve(part, x, trace)
        done = done and solved.settled
        w = torch.where(solved.kept, now.w, 0.0)  # what leaves the support is dropped at once
        own = times(w - part.w0, part.columns)
        dropped = Standing(solved.kept, w, own.double())
        e, image = (solved.w - w).double(), (solved.rho - part.offset - own).double()
        at_dropped = rho + problem.ranks.sum((dropped.own - now.own).sum(0))
        t = joint_steps(of_batch, at_dropped, (w - part.w0).double(), e, image, trace)
        after = dropped.moved(t, e, image)
        moved = problem.ranks.sum((after.own - dropped.own).sum(0))
        if of_batch.objective(after.w, at_dropped + moved) <= before:
            return after, done
    return now, done


def joint_steps(
    problem: Problem, rho: Tensor, d: Tensor, e: Tensor, image: Tensor, trace: Trace
) -> Tensor:
    """The steps t, (b,), that minimise Q where block B is displaced by d_B + t_B e_B.

    With z_B = (d_B + t_B e_B) . e_B / |e_B| this is a ridge regression in z, whose columns are
    A_B e_B / |e_B|, and whose minimiser is a backsolve.

    Args:
        problem: whose mu and ranks count.
        rho: the residual at t = 0, (n,).
        d: the displacements there, (b, B).
        e: the ways to go, (b, B).
        image: A_B e_B, (b, n).
        trace: takes note of the jitter.
    """
    length = e.norm(dim=1)
    moving = (length > 0).nonzero()[:, 0]
    far, e, d = length[moving], e[moving], d[moving]
    along = (d * e).sum(1) / far
    columns = HeldMatrix(image[moving] / far[:, None], problem.ranks)
    # z itself is the displacement; `offset` is not read, because the residual is known.
    small = Problem(columns, torch.zeros_like(along), problem.mu, rho)
    every = torch.arange(len(moving), device=moving.device)
    solved = backsolve(small, Iterate(along, every, rho, small.objective(along, rho)))
    trace.jitter = max(trace.jitter, solved.jitter)
    return torch.zeros_like(length).index_copy_(0, moving, (solved.point.w - along) / far)
