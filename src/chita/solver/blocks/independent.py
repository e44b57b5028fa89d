"""The stratified block-wise approximation (algorithm 6): every diagonal block solved independently.

The columns of A are read once. While the columns of a batch of blocks are in memory, their problems
are solved, and the contributions of the points of interest to the global residual are summed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from chita.solver.blocks.batched_problem import BatchedPoint, BatchedProblem, BatchedSolution
from chita.solver.blocks.block_batch import BlockBatch, block_batches
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Trace
from chita.solver.problem import Iterate, Problem

logger = logging.getLogger(__name__)

CACHE = 2**26  # bytes of columns in a batch on a CPU: a few blocks for each core
GPU_SHARE = 20  # a batch takes 1/20 of a GPU's memory, which needs many blocks to be busy
# On a GPU, a batch is padded by a copy, and its smallest block has at least this share of the
# largest block's size. On a CPU a copy costs more than a call, so blocks of a batch are equal.
ALIKE = 0.75

# Maps a batch of blocks and P_k(w0), which it may overwrite, to their solution.
BatchSolver = Callable[[BatchedProblem, BatchedPoint, Trace], BatchedSolution]
# Maps a block's problem and starting point to its solution and whether that settled.
BlockSolver = Callable[[Problem, Iterate, Trace], tuple[Iterate, bool]]


def cut_blocks(
    layers: Sequence[int], block_size: int, units: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """Cut each layer evenly into blocks [start, stop) of at most `block_size` weights.

    If the blocks of a layer differ, those with one unit more come first.

    Args:
        layers: the number of weights in each layer, in the order of the columns.
        block_size: B_size of the paper.
        units: for each layer, the number of adjacent weights that are never separated, even if
            they exceed `block_size`; single weights by default.
    """
    blocks = []
    start = 0
    for size, unit in zip(layers, units or [1] * len(layers), strict=True):
        parts = -(-size // (max(block_size // unit, 1) * unit))
        least, larger = divmod(size // unit, parts)
        bounds = [start + unit * (least * i + min(i, larger)) for i in range(parts + 1)]
        blocks += list(pairwise(bounds))
        start += size
    return blocks


def one_by_one(blocks: Sequence[tuple[int, int]]) -> list[BlockBatch]:
    """Return batches of one block each."""
    return [BlockBatch((block,)) for block in blocks]


def side_by_side(
    blocks: Sequence[tuple[int, int]], matrix: GradientMatrix, share: float = 1.0
) -> list[BlockBatch]:
    """Return batches as large as suits the device, with at most a share of the columns each."""
    alike = ALIKE if matrix.device.type == "cuda" else 1.0
    columns = batch_bytes(matrix.device) // max(matrix.n * matrix.dtype.itemsize, 1)
    return list(block_batches(blocks, min(columns, int(share * matrix.p)), alike))


def batch_bytes(device: torch.device) -> int:
    """Return the bytes that the columns of a batch of blocks may take."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory // GPU_SHARE
    return CACHE


def solve_independent(
    problem: Problem, k: int, batches: Iterable[BlockBatch], solve: BatchSolver, trace: Trace
) -> tuple[Iterate, bool]:
    """Run algorithm 6: each block keeps as many weights as the magnitude solution x has in it.

    The blocks are independent, so together they can overshoot. A solution whose global objective is
    above that of x is moved back towards w0 as far as needed.

    Returns:
        The point reached, with a freshly computed residual, and whether every block converged.
    """
    matrix, w0 = problem.matrix, problem.w0
    largest, support = problem.project(w0, k)
    chosen = torch.zeros_like(w0, dtype=torch.bool).index_fill_(0, support, True)
    w, kept, converged = torch.zeros_like(w0), torch.zeros_like(chosen), True
    # A d for x, for the blocks' solutions together, and for w0 on their support.
    displaced = torch.zeros(3, matrix.n, dtype=torch.float64, device=w0.device)
    for batch in batches:
        part = BatchedProblem(
            batch.stack_own(matrix.read(batch.start, batch.stop)),
            batch.stack(w0),
            kept=batch.stack(chosen),
            mu=problem.mu,
            offset=problem.offset,
            constraint=problem.constraint.block(
                batch.start, batch.stop, chosen[batch.start : batch.stop]
            ),
        )
        x = part.start()
        displaced[0] += (x.rho - problem.offset).double().sum(0)
        solved = solve(part, x, trace)
        displaced[1] += (solved.rho - problem.offset).double().sum(0)
        displaced[2] += (solved.still - problem.offset).double().sum(0)
        w[batch.start : batch.stop] = batch.unstack(solved.w)
        kept[batch.start : batch.stop] = batch.unstack(solved.kept)
        converged = converged and solved.settled
        del part, x, solved  # they refer to the columns, whose memory the next ones may need
    rho = (problem.ranks.sum(displaced) + problem.offset).to(w0.dtype)

    def point(w: Tensor, support: Tensor, rho: Tensor) -> Iterate:
        return Iterate(w, support, rho, problem.objective(w, rho))

    start, support = point(largest, support, rho[0]), kept.nonzero()[:, 0]
    together = point(w, support, rho[1])
    trace.history.append(start.objective)
    if together.objective > start.objective:
        still = point(torch.where(kept, w0, 0.0), support, rho[2])
        together = _draw_back(problem, start, still, together)
    return together, problem.ranks.all(converged)


def alone(solve: BlockSolver) -> BatchSolver:
    """Turn a solver of one block into a solver of batches of at most one block."""

    def solve_one(problem: BatchedProblem, x: BatchedPoint, trace: Trace) -> BatchedSolution:
        if not problem.counts:
            return BatchedSolution(problem.w0, problem.kept, x.rho, x.rho, True)
        block = Problem(
            HeldMatrix(problem.columns[0]),
            problem.w0[0],
            problem.mu,
            problem.offset[0],
            constraint=problem.constraint,
        )
        support = problem.kept[0].nonzero()[:, 0]
        w = problem.spread(x.support, x.values)[0]
        point, settled = Iterate(w, support, x.rho[0], float(x.objective)), True
        if len(support):
            record = Trace(trace.limit)
            solved, settled = solve(block, point, record)
            point = block.at(solved.w, solved.support)
            trace.iterations = max(trace.iterations, record.iterations)
            trace.jitter = max(trace.jitter, record.jitter)
        kept = torch.zeros_like(problem.kept).index_fill_(1, point.support, True)
        still = problem.unmoved(kept)
        return BatchedSolution(point.w[None], kept, point.rho[None], still, settled)

    return solve_one


def _draw_back(problem: Problem, x: Iterate, still: Iterate, together: Iterate) -> Iterate:
    """Return the best point between `still`, which is w0 on the support of `together`, and
    `together`; or x if that is better."""
    # Q along the line still + t (together - still) is a parabola, given its two ends and a slope.
    moved, change = together.w - still.w, together.rho - still.rho
    slope = float(still.rho.double() @ change.double())
    along = (still.w - problem.w0).double() @ moved.double()
    slope += problem.mu * float(problem.ranks.sum(along))
    curvature = 2 * (together.objective - still.objective - slope)
    share = min(max(-slope / curvature, 0.0), 1.0) if curvature > 0 else 0.0
    w, rho = still.w + share * moved, still.rho + share * change
    between = Iterate(w, together.support, rho, problem.objective(w, rho))
    if between.objective > x.objective:
        logger.info("the blocks overshoot together: the magnitude solution is better and is kept")
        return x
    logger.info("the blocks overshoot together: their displacement is scaled by %.3g", share)
    return between
