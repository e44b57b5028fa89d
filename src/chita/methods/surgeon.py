"""The surgeon: rank all weights by what it costs to remove each, remove the cheapest together.

Removing weight q alone, and moving the others so that the quadratic model of the loss rises least,
costs w_q^2 / (2 [H^-1]_qq) and moves w by -H^-1 e_q w_q / [H^-1]_qq. The surgeon sums these moves
over all weights P that it removes (Singh & Alistarh 2020, Frantar et al. 2021):

    w  <-  w - H^-1[:, P] (w_P / diag_P),      then zeros on P.

With the first-order term the model of the loss is g^T d + 1/2 d^T H d, which up to a constant is
1/2 |w + d - v|_H^2 around its minimiser v = w - H^-1 g: all of this holds with v in place of w.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.methods.inverse import BlockDiagonal, Invert, square_norms
from chita.solver.algorithm import Layout, begin
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
