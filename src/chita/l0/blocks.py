"""The stratified block-wise approximation (algorithm 6): every diagonal block solved on its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from chita.l0.options import Trace
from chita.l0.problem import Iterate, Problem

logger = logging.getLogger(__name__)

# Takes a block's problem and its starting point to its solution, and says whether it settled.
BlockSolver = Callable[[Problem, Iterate, Trace], tuple[Iterate, bool]]


def cut_blocks(layers: Sequence[int], block_size: int) -> list[tuple[int, int]]:
    """The blocks [start, stop): each layer cut evenly into parts of at most `block_size` weights.

    Args:
        layers: the number of weights in each layer, in the order of the columns.
        block_size: B_size of the paper.
    """
    blocks = []
    start = 0
    for size in layers:
        parts = -(-size // block_size)
        bounds = [start + size * i // parts for i in range(parts + 1)]
        blocks += list(pairwise(bounds))
        start += size
    return blocks


def solve_blocks(
    problem: Problem,
    x: Iterate,
    blocks: Sequence[tuple[int, int]],
    solve: BlockSolver,
    trace: Trace,
) -> tuple[Iterate, bool]:
    """Algorithm 6: each block keeps as many weights as the magnitude solution x has in it.

    The blocks know nothing of each other, so that together they can overshoot: a solution whose
    global objective is above x's is drawn back towards w0 as far as it takes. Returns the point
    reached and whether every block converged.
    """
    w, supports, converged = torch.zeros_like(x.w), [], True
    for start, stop in blocks:
        first, last = torch.searchsorted(x.support, x.support.new_tensor([start, stop])).tolist()
        if first == last:
            continue
        block = Problem(
            problem.matrix.span(start, stop), problem.w0[start:stop], problem.mu, problem.offset
        )
        record = Trace(trace.limit)
        point = block.at(x.w[start:stop], x.support[first:last] - start)
        solved, settled = solve(block, point, record)
        w[start:stop] = solved.w
        supports.append(solved.support + start)
        converged = converged and settled
        trace.iterations = max(trace.iterations, record.iterations)
        trace.jitter = max(trace.jitter, record.jitter)
    together = problem.at(w, torch.cat([x.support[:0], *supports]))
    if together.objective > x.objective:
        together = _draw_back(problem, x, together)
    return together, problem.ranks.all(converged)


def _draw_back(problem: Problem, x: Iterate, together: Iterate) -> Iterate:
    """The best point between w0 on the support of `together` and `together`, or x if better."""
    w = torch.zeros_like(x.w)
    w[together.support] = problem.w0[together.support]
    still = problem.at(w, together.support)
    # Q along the line still + t (together - still) is a parabola, given its two ends and a slope.
    moved, change = together.w - still.w, together.rho - still.rho
    slope = float(still.rho.double() @ change.double())
    along = (still.w - problem.w0).double() @ moved.double()
    slope += problem.mu * float(problem.ranks.sum(along))
    curvature = 2 * (together.objective - still.objective - slope)
    share = min(max(-slope / curvature, 0.0), 1.0) if curvature > 0 else 0.0
    between = problem.at(still.w + share * moved, together.support)
    if between.objective > x.objective:
        logger.info("the blocks overshoot together: the largest weights do better, and stay")
        return x
    logger.info("the blocks overshoot together: their displacement is scaled by %.3g", share)
    return between
