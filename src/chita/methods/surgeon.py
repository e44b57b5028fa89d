"""The surgeon: rank all weights by the cost of removing each, remove the cheapest together.

With H = A^T A + mu I and mu = n lambda, the damped Fisher of the rivals is H / n: rankings and
updates are the same with the inverse of either, and H is what the code works with.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from chita.methods.inverse import BlockDiagonal, Invert, square_norms
from chita.solver.algorithm import Algorithm, Layout, begin
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surgeon:
    """The summed surgeon's update on the k weights that are dearest to remove.

    Attributes:
        invert: how to come by H^-1 (or what stands for it) over a batch of blocks.
        first_order: whether to start from the minimiser of the model with its first-order term.
    """

    invert: Invert
    first_order: bool = False

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        """The ranking is global: blocks make H^-1 block-diagonal, and no more."""
        begin(problem, k, trace)
        inverse = BlockDiagonal(problem, layout, self.invert)
        w = problem.w0
        if self.first_order:
            w = w - inverse.product(problem.matrix.adjoint(problem.offset))
        diagonal = _mend(problem, inverse.diagonal().to(w.dtype))
        kept = problem.largest(w / diagonal.sqrt(), k)
        mask = torch.zeros_like(w).index_fill_(0, kept, 1.0)
        moved = w - inverse.product((1 - mask) * w / diagonal)
        return problem.at(mask * moved, kept), True


def _mend(problem: Problem, diagonal: Tensor) -> Tensor:
    """[H^-1]_ii >= 1 / H_ii always: where rounding has taken more than that, it is put back."""
    h = square_norms(problem.matrix.whole()).add_(problem.mu)
    least = 1 / h.clamp_min_(torch.finfo(h.dtype).tiny)
    broken = int((diagonal < 0.99 * least).sum())
    if broken:
        logger.warning(
            "rounding has put [H^-1]_ii of %d weights below 1 / H_ii, which now stands for it; "
            "a larger ridge avoids it",
            broken,
        )
    return diagonal.maximum(least)


@dataclass(frozen=True)
class WithoutFirstOrder:
    """An algorithm on the problem without its first-order term, which is that of offset 0."""

    algorithm: Algorithm

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        begin(problem, k, trace)
        still = replace(problem, offset=problem.offset.new_zeros(problem.matrix.n))
        # Its objective is another one, which has no place in the history of this problem.
        record = Trace(trace.limit)
        point, settled = self.algorithm.run(still, k, layout, options, record)
        trace.iterations, trace.jitter = record.iterations, record.jitter
        return problem.at(point.w, point.support), settled
