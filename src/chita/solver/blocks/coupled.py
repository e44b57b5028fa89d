"""Coupled blocks: coordinate descent over blocks on the global problem.

This is not in the paper, whose blocks (algorithm 6) are solved independently, each as if all other
blocks stayed at w0. Starting from that solution, coupled blocks share one residual rho = A d + c.
Batches of blocks take turns:

1. Every block of the batch is solved with all other blocks fixed. Its solution moves from w_B to
   w_B + e_B, and rho by A_B e_B.
2. All blocks of the batch move together, block B to w_B + t_B e_B. The steps t minimise the global
   Q, which is a ridge regression with one weight for each block of the batch.

While the supports stay, Q cannot rise, because t = 0 is possible. Because Q is convex and t = 1/b
is possible for each of b blocks, Q falls by at least the mean of the gains of single blocks. If a
change of supports makes Q rise, the batch keeps its supports and moves only its weights.

The sweeps start from the independent solution because, from P_k(w0), the first blocks would
compensate for all pruned weights and move far. A sweep, in which every block has one turn, is one
pass over A. Ranks take their turns at the same time, as if their batches were one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from chita.solver.backsolve import backsolve
from chita.solver.blocks.batched_algebra import times
from chita.solver.blocks.batched_problem import BatchedProblem
from chita.solver.blocks.block_batch import BlockBatch
from chita.solver.blocks.independent import BatchSolver
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.ranks import Ranks

# The largest share of the columns in a batch. In smaller batches the first blocks do most of the
# work; in larger ones too many blocks change their supports at once, and the change is rejected.
SHARE = 1 / 4
STILL = 100  # rounding errors of its weights by which a block may move without counting as moved

# How blocks are solved: first supports and weights, then, on fixed supports, the weights only.
Rules = tuple[BatchSolver, BatchSolver]


class Standing(NamedTuple):
    """The current state of the b blocks of a batch."""

    kept: Tensor  # (b, B) bool, the supports
    w: Tensor  # (b, B), the weights
    own: Tensor  # (b, n), A_B (w_B - w0_B) in float64

    def moved(self, t: Tensor, e: Tensor, image: Tensor) -> Standing:
        """Move block B by t_B e_B; t is (b,), e (b, B) and its image A_B e_B (b, n)."""
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
    """Sweep over all blocks, from their independent solution x, until Q settles.

    At most `options.block_sweeps` sweeps are made.

    Returns:
        The point reached, with a freshly computed residual, and whether every block converged.
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
    """Give every block one turn: one pass over A."""
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
        # The freshly added residual replaces the one that many updates have rounded.
        rho, afresh, settled = rho + change, afresh + total, settled and done
        del part, columns  # frees their memory for the next batch
    rho = afresh.to(w0.dtype)
    support = kept.nonzero()[:, 0]
    return Iterate(w, support, rho, problem.objective(w, rho)), ranks.all(settled)


def _rounds(batches: Sequence[BlockBatch], ranks: Ranks) -> Iterator[BlockBatch]:
    """Yield the batches, then empty ones until every rank has had as many turns."""
    rounds = int(ranks.max(torch.tensor(len(batches))))
    yield from batches
    yield from [BlockBatch(())] * (rounds - len(batches))


def _turn(
    problem: Problem, part: BatchedProblem, now: Standing, rho: Tensor, rules: Rules, trace: Trace
) -> tuple[Standing, bool]:
    """Return the next state of the blocks, given the global residual, and whether all converged."""
    of_batch = replace(problem, w0=part.w0)  # Q without the ridge terms of all other blocks
    before, done = of_batch.objective(now.w, rho), True
    for solve in rules:
        x = part.at(now.w, part.offset + now.own.to(part.offset.dtype))
        solved = solve(part, x, trace)
        done = done and solved.settled
        w = torch.where(solved.kept, now.w, 0.0)  # weights that leave the support become 0 at once
        own = times(w - part.w0, part.columns)
        dropped = Standing(solved.kept, w, own.double())
        e, image = (solved.w - w).double(), (solved.rho - part.offset - own).double()
        # A move by rounding errors has no direction: its image is not A_B e_B.
        still = e.norm(dim=1) <= STILL * torch.finfo(w.dtype).eps * w.norm(dim=1)
        e, image = e.masked_fill(still[:, None], 0.0), image.masked_fill(still[:, None], 0.0)
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
    """Return the steps t, (b,), that minimise Q where block B is displaced by d_B + t_B e_B.

    With z_B = (d_B + t_B e_B) . e_B / |e_B| this is a ridge regression in z, whose columns are
    A_B e_B / |e_B|, and whose minimiser is a backsolve.

    Args:
        problem: gives mu and the ranks.
        rho: the residual at t = 0, (n,).
        d: the displacements at t = 0, (b, B).
        e: the directions, (b, B).
        image: A_B e_B, (b, n).
        trace: records the jitter.
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
