"""The surgeon: rank all weights by the cost of removing each, and remove the cheapest together.

With H = A^T A + mu I and mu = n lambda, the damped Fisher matrix of the compared methods is H / n.
Rankings and updates are the same with both inverses; the code uses H.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from chita.methods.surgeon_inverse import BlockDiagonal, Invert, square_norms
from chita.solver.algorithm import Algorithm, Layout, begin
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surgeon:
    """Keep the k weights with the highest cost of removal, and apply the summed OBS update.

    Attributes:
        invert: computes H^-1, or an approximation of it, over a batch of blocks.
        first_order: whether to start from the minimiser of the model with its first-order term.
    """

    invert: Invert
    first_order: bool = False

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        """Prune to k weights; with blocks H^-1 is block-diagonal, and the ranking stays global."""
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
    """Restore [H^-1]_ii >= 1 / H_ii, which holds exactly, where rounding has violated it."""
    h = square_norms(problem.matrix.whole()).add_(problem.mu)
    least = 1 / h.clamp_min_(torch.finfo(h.dtype).tiny)
    broken = int((diagonal < 0.99 * least).sum())
    if broken:
        logger.warning(
            "rounding errors put [H^-1]_ii of %d weights below its bound 1 / H_ii, which is used "
            "instead; a larger ridge avoids this",
            broken,
        )
    return diagonal.maximum(least)


@dataclass(frozen=True)
class WithoutFirstOrder:
    """An algorithm, applied to the problem without its first-order term (offset 0)."""

    algorithm: Algorithm

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        begin(problem, k, trace)
        still = replace(problem, offset=problem.offset.new_zeros(problem.matrix.n))
        # The objectives without the term do not belong in the history of this problem.
        record = Trace(trace.limit)
        point, settled = self.algorithm.run(still, k, layout, options, record)
        trace.iterations, trace.jitter = record.iterations, record.jitter
        return problem.at(point.w, point.support), settled
