"""OBS (Hassibi & Stork 1992): the exact inverse Fisher matrix, one weight at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chita.curvature.fisher import Fisher
from chita.methods.m_fac import explained
from chita.methods.registry import Method
from chita.methods.surgeon import WithoutFirstOrder
from chita.methods.surgeon_inverse import all_blocks, cholesky, require_ridge, square_norms
from chita.solver.algorithm import Layout, begin
from chita.solver.blocks.independent import alone, one_by_one, solve_independent
from chita.solver.matrix.gradient_matrix import CHUNK, GradientMatrix
from chita.solver.matrix.memory import ENTRY, FACTOR_ENTRY
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem

ROUND = 512  # removals in a round at most
CANDIDATES = 2048  # weights among which a round chooses


@dataclass(frozen=True)
class OneByOne:
    """Remove the weight with the least w^2 / [H_S^-1]_ii, update all others, and repeat.

    With blocks, each block is a separate problem; the magnitudes of the weights decide how many
    weights it keeps.
    """

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        require_ridge(problem)

        def whole(part: Problem, start: Iterate, record: Trace) -> tuple[Iterate, bool]:
            return remove_one_by_one(part, len(start.support)), True

        blocks = layout.blocks
        if blocks is None:
            return whole(problem, begin(problem, k, trace), trace)
        return solve_independent(problem, k, one_by_one(blocks), alone(whole), trace)


def one_by_one_memory(layout: Layout, n: int) -> int:
    """Return the bytes of the n x n systems, of E among the candidates, and of a copy of A_S."""
    largest = max(stop - start for start, stop in all_blocks(layout))
    systems = 3 * n * n + 2 * min(CANDIDATES, largest) ** 2
    return FACTOR_ENTRY * systems + ENTRY * n * largest


def remove_one_by_one(problem: Problem, k: int) -> Iterate:
    """Remove weights round by round until k are left."""
    matrix, w0 = problem.matrix, problem.w0.double()
    left = torch.arange(matrix.p, device=w0.device)
    gram = matrix.gram(left, torch.float64).clone()
    removed = gram.new_zeros(matrix.n)  # A_off w0_off
    while True:
        columns = matrix if len(left) == matrix.p else matrix.columns(left)
        factor = cholesky(gram[None], problem.mu)[0]
        # The weights after the removals so far: the minimiser of the quadratic on S.
        y = torch.cholesky_solve(removed[:, None], factor)[:, 0]
        w = w0[left] + columns.adjoint(y.to(columns.dtype))
        if len(left) == k or not bool(w.isfinite().all()):
            break
        gone = _Round(columns, factor, w, problem.mu).remove(len(left) - k)
        lost = columns.whole()[gone].double()
        gram -= lost.t() @ lost
        removed += w0[left[gone]] @ lost
        left = left[torch.ones_like(left, dtype=torch.bool).index_fill_(0, gone, False)]
    pruned = torch.zeros_like(problem.w0)
    pruned[left] = w.to(pruned.dtype)
    return problem.at(pruned, left)


class _Round:
    """The removals between two factorisations of the system.

    E = mu H_S^-1 = I - A_S^T (A_S A_S^T + mu I)^-1 A_S; a removal eliminates one of its rows.

    Args:
        columns: A_S, m columns.
        factor: the Cholesky factor L of A_S A_S^T + mu I, (n, n).
        w: the weights that are left, (m,).
        mu: n lambda.
    """

    def __init__(self, columns: GradientMatrix, factor: Tensor, w: Tensor, mu: float) -> None:
        self.columns, self.factor, self.w = columns, factor, w
        chunks = torch.split(columns.whole(), CHUNK)
        shares = [explained(factor[None], chunk[None].double())[0] for chunk in chunks]
        # E_ii >= mu / H_ii holds exactly: restore it where cancellation has lost it.
        self.least = mu / (square_norms(columns.whole()).double() + mu)
        self.spare = (1 - torch.cat(shares)).maximum(self.least)  # E_ii

    def remove(self, count: int) -> Tensor:
        """Return the positions in S of the next weights to remove, from one to `count` of them."""
        cost = self.w.square() / self.spare
        cheapest = torch.topk(cost, min(CANDIDATES, len(cost)), largest=False).indices.sort().values
        steps = self._eliminate(cheapest, min(ROUND, count, len(cheapest)))
        others = torch.ones_like(cost, dtype=torch.bool).index_fill_(0, cheapest, False)
        if not bool(others.any()):
            return steps.places
        lowest = self._lowest_cost(others.nonzero()[:, 0], steps)
        undercut = (lowest[:-1] < steps.costs[1:]).nonzero()[:, 0]
        return steps.places[: int(undercut[0]) + 1] if len(undercut) else steps.places

    def _eliminate(self, among: Tensor, count: int) -> _Steps:
        """Make `count` removals, choosing among the weights `among` only."""
        rows = torch.linalg.solve_triangular(
            self.factor.mT, self.columns.whole()[among].double(), upper=True, left=False
        )
        w, spare, least = self.w[among], self.spare[among], self.least[among]
        off_diagonal = -(rows @ rows.t())
        eliminated = rows.new_zeros(len(among), count)  # f, step by step
        chosen: list[int] = []
        costs: list[float] = []
        shifts: list[float] = []
        for step in range(count):
            cost = w.square() / spare
            cost[chosen] = torch.inf
            i = int(cost.argmin())
            pivot = float(spare[i]) ** 0.5
            f = (off_diagonal[i] - eliminated[:, :step] @ eliminated[i, :step]) / pivot
            f[i] = pivot
            costs.append(float(cost[i]))
            shifts.append(float(w[i]) / pivot)
            chosen.append(i)
            w = w - f * shifts[-1]
            spare = (spare - f.square()).maximum(least)
            eliminated[:, step] = f
        return _Steps(
            among[chosen], w.new_tensor(costs), w.new_tensor(shifts), eliminated[chosen].tril()
        )

    def _lowest_cost(self, others: Tensor, steps: _Steps) -> Tensor:
        """Return the least cost among the weights `others` after each step, (count,)."""
        lowest = torch.full_like(steps.costs, torch.inf)
        chosen = self.columns.whole()[steps.places].double()
        y = torch.cholesky_solve(chosen.t(), self.factor)
        for part in torch.split(others, CHUNK):
            entries = -(self.columns.whole()[part].double() @ y)  # E in the chosen columns
            f = torch.linalg.solve_triangular(steps.pivots.mT, entries, upper=True, left=False)
            w = self.w[part, None] - (f * steps.shifts).cumsum(1)
            spare = self.spare[part, None] - f.square().cumsum(1)
            cost = w.square() / spare.maximum(self.least[part, None])
            lowest = lowest.minimum(cost.amin(0))
        return lowest


@dataclass(frozen=True)
class _Steps:
    """The removals of a round.

    Attributes:
        places: the positions in S of the removed weights, in order, (count,).
        costs: their costs, (count,).
        shifts: w_i / sqrt(E_ii) of each, (count,).
        pivots: the Cholesky factor of E among them, (count, count).
    """

    places: Tensor
    costs: Tensor
    shifts: Tensor
    pivots: Tensor


OBS = Method(
    "obs", Fisher, WithoutFirstOrder(OneByOne()), constrained=False, memory=one_by_one_memory
)
