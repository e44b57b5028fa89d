"""OBS (Hassibi & Stork 1992), exact and greedy: one weight at a time, on the inverse as it then is.

All of it in sample space. With S the weights that are left, C = (A_S A_S^T + mu I_n)^-1 and
q_j = a_j^T C a_j, the inverse of what is left of H has the diagonal [H_S^-1]_jj = (1 - q_j) / mu.
Removing weight i takes one pass over A_S: with u = C a_i and t = A_S^T u,

    w_S <- w_S + t w_i / (1 - q_i)  (and w_i = 0),    q <- q + t^2 / (1 - q_i),
    C   <- C + u u^T / (1 - q_i).

Between two rounds the C of the round's start stays, and the u of its removals stand for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chita.l0.algorithm import Layout
from chita.l0.blocks import solve_blocks
from chita.l0.options import Options, Trace
from chita.l0.problem import Iterate, Problem
from chita.matrix import CHUNK, GradientMatrix
from chita.surgeon.block_batch import all_blocks
from chita.surgeon.inverse import cholesky, require_ridge, square_norms
from chita.surgeon.matrix_free import explained

ROUND = 512  # removals between two fresh starts: few enough that rounding does not add up
ENTRY, FACTOR_ENTRY = 4, 8  # bytes of a float32 and a float64


@dataclass(frozen=True)
class OneByOne:
    """Greedy removal of the weight of least w^2 / [H_S^-1]_ii, all others updated each time.

    In blocks each is a problem of its own, with the budget that the magnitudes give it.
    """

    def run(
        self, problem: Problem, x: Iterate, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        require_ridge(problem)

        def whole(part: Problem, start: Iterate, record: Trace) -> tuple[Iterate, bool]:
            return remove_one_by_one(part, len(start.support)), True

        blocks = layout.blocks
        if blocks is None:
            return whole(problem, x, trace)
        return solve_blocks(problem, x, blocks, whole, trace)


def one_by_one_memory(layout: Layout, n: int) -> int:
    """The bytes of C, what it is made from, and a copy of the columns that are left."""
    largest = max(stop - start for start, stop in all_blocks(layout))
    return FACTOR_ENTRY * 4 * n * n + ENTRY * n * largest


def remove_one_by_one(problem: Problem, k: int) -> Iterate:
    """The point that is left when all but k weights have been removed, round after round."""
    matrix, w0 = problem.matrix, problem.w0.double()
    silent = square_norms(matrix.stored) == 0
    left = silent.to(torch.uint8).argsort(stable=True)  # zero columns last, where no pass goes
    gram = matrix.gram(torch.arange(matrix.p, device=left.device), torch.float64).clone()
    removed = gram.new_zeros(matrix.n)  # A_off w0_off
    w = w0[left]
    while len(left) > k:
        columns = matrix.columns(left[: int((~silent[left]).sum())])
        state = _Round(columns, w0[left], mu=problem.mu, gram=gram, removed=removed)
        gone = state.remove(min(ROUND, len(left) - k))
        lost = columns.stored[gone[: columns.p]].double()
        gram -= lost.t() @ lost
        removed += w0[left[: columns.p]][gone[: columns.p]] @ lost
        left, w = left[~gone], state.w[~gone]
    support, order = left.sort()
    pruned = torch.zeros_like(problem.w0)
    pruned[support] = w[order].to(pruned.dtype)
    return problem.at(pruned, support)


class _Round:
    """Up to ROUND removals from a fresh start; what is per weight has the zero columns last."""

    def __init__(
        self, columns: GradientMatrix, w0: Tensor, *, mu: float, gram: Tensor, removed: Tensor
    ) -> None:
        self.columns = columns
        factor = cholesky(gram[None], mu)
        unit = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        self.C = torch.cholesky_solve(unit, factor[0])
        # The minimiser of the quadratic on the weights left, to which the removals have led.
        self.w = w0.clone()
        self._seen(self.w).add_(self._adjoint(self.C @ removed))
        self.spare = torch.ones_like(w0)  # 1 - q_j
        chunks = torch.split(columns.stored, CHUNK)
        self._seen(self.spare).sub_(
            torch.cat([explained(factor, c.double()[None])[0] for c in chunks])
        )
        # H_jj [H^-1]_jj >= 1: where cancellation has taken more than that, it is put back.
        self.least = torch.ones_like(w0)
        self._seen(self.least).copy_(mu / (square_norms(columns.stored).double() + mu))
        self.spare = self.spare.maximum(self.least)

    def remove(self, count: int) -> Tensor:
        """Remove `count` weights, one at a time; the mask of those that are gone."""
        gone = torch.zeros_like(self.w, dtype=torch.bool)
        updates = self.C.new_zeros(count, len(self.C))  # C is its start's plus updates^T updates
        for step in range(count):
            cost = (self.w.square() / self.spare).masked_fill_(gone, torch.inf)
            i = int(cost.argmin())
            gone[i] = True
            if i >= self.columns.p:
                continue
            column, spare = self.columns.stored[i].double(), float(self.spare[i])
            u = self.C @ column + updates[:step].t() @ (updates[:step] @ column)
            t = self._adjoint(u)
            self._seen(self.w).add_(t, alpha=float(self.w[i]) / spare)
            self._seen(self.spare).sub_(t.square(), alpha=1 / spare)
            self.spare = self.spare.maximum(self.least)
            updates[step] = u / spare**0.5
        return gone

    def _seen(self, entries: Tensor) -> Tensor:
        """The part of a vector that belongs to columns which are not zero."""
        return entries[: self.columns.p]

    def _adjoint(self, u: Tensor) -> Tensor:
        return self.columns.adjoint(u.to(self.columns.stored.dtype)).double()
