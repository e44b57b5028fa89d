"""Dead columns: columns of A that are entirely zero, so that no sample depends on the weight.

Only the ridge acts on such a weight: removing it costs mu w^2 / 2, independent of the samples. A
large dead weight would therefore be kept instead of a smaller one that the samples need. The
authors of the paper drop dead columns before they solve. Here the problem is solved with w0 = 0 in
these columns, which is equivalent: P_k ranks them last, and their gradient is zero. No column is
moved or copied, so blocks, patterns, storages and ranks need no special code.

If the live columns cannot fill a support of k weights, the largest dead weights complete it, with
their values in w0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from chita.solver.algorithm import Algorithm, Layout
from chita.solver.constraints.constraint import Constraint
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.scaled import ordinary
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.ranks import ALONE, Ranks
from chita.solver.solve import Solution, solve_problem


class ColumnSizes(NamedTuple):
    """The sizes of the columns of this rank, from one pass over A."""

    squares: Tensor  # (p,), |s a_j|^2
    unit: float  # s, a power of two that keeps the squares from underflow and overflow
    nonzero: Tensor  # (p,) bool, whether any entry is not zero


def column_sizes(matrix: GradientMatrix) -> ColumnSizes:
    """Return |s a_j|^2 of each column, and whether it has a non-zero entry: one pass over A.

    In half precision, an entry below 2^-39 of the largest in its row may be stored as zero. A
    column of only such entries counts as zero, as it is in the stored A.
    """
    matrix, unit = ordinary(matrix)
    squares = torch.empty(matrix.p, dtype=matrix.dtype, device=matrix.device)
    nonzero = torch.empty(matrix.p, dtype=torch.bool, device=matrix.device)
    for start in range(0, matrix.p, matrix.piece):
        stop = min(start + matrix.piece, matrix.p)
        columns = matrix.read(start, stop)
        squares[start:stop] = columns.square().sum(1)
        nonzero[start:stop] = squares[start:stop] != 0
        # The square of a small entry is rounded to zero, so check the entries themselves.
        doubtful = (~nonzero[start:stop]).nonzero()[:, 0]
        nonzero[start + doubtful] = (columns[doubtful] != 0).any(1)
    return ColumnSizes(squares, unit, nonzero)


@dataclass(frozen=True)
class DeadColumns:
    """The dead columns of A.

    Attributes:
        columns: (p,) bool, over the columns of this rank.
        count: the number of dead columns on all ranks.
    """

    columns: Tensor
    count: int

    @classmethod
    def find(
        cls, nonzero: Tensor, layers: Sequence[int], *, part: slice, ranks: Ranks = ALONE
    ) -> DeadColumns:
        """Return the columns of zeros, except in layers that have no other columns.

        If no sample depends on any weight of a layer, the samples cannot rank its weights, and
        dropping them would remove the layer. Such a layer is exempt.

        Args:
            nonzero: (p,) bool, whether a column of this rank has a non-zero entry.
            layers: the number of weights in each layer, over all ranks.
            part: the columns of this rank among those of all.
            ranks: the ranks that share the columns.
        """
        live = ranks.gather(nonzero)
        dead = [~layer & layer.any() for layer in torch.split(live, list(layers))]
        columns = torch.cat(dead) if dead else live
        return cls(columns[part], int(columns.sum()))

    @classmethod
    def none(cls, columns: int, device: torch.device) -> DeadColumns:
        """Return an instance without dead columns."""
        return cls(torch.zeros(columns, dtype=torch.bool, device=device), 0)

    def solve(
        self, problem: Problem, k: int, algorithm: Algorithm, *, options: Options, layout: Layout
    ) -> Solution:
        """Solve without the dead columns, then complete the support with the largest dead weights.

        The objective is Q of the given problem, which includes the ridge of removed dead weights.
        """
        if not self.count:
            return solve_problem(problem, k, algorithm, options=options, layout=layout)
        without = replace(problem, w0=self.drop(problem.w0))
        solution = solve_problem(without, k, algorithm, options=options, layout=layout)
        support = self.complete(
            solution.support, problem.w0, constraint=problem.constraint, ranks=problem.ranks
        )
        w = self.restore(solution.w, support, problem.w0)
        removed = (problem.w0 - w)[self.columns].double().square().sum()
        ridge = float(problem.ranks.sum(removed)) * problem.mu / 2
        return replace(
            solution,
            w=w,
            support=support,
            objective=solution.objective + ridge,
            history=[objective + ridge for objective in solution.history],
        )

    def drop(self, w0: Tensor) -> Tensor:
        """Return w0 with zeros in the dead columns, (p,)."""
        return w0.masked_fill(self.columns, 0.0) if self.count else w0

    def complete(
        self,
        support: Tensor,
        w0: Tensor,
        *,
        constraint: Constraint,
        ranks: Ranks = ALONE,
        moves: bool = True,
    ) -> Tensor:
        """Exchange the dead columns of a support for those with the largest weights.

        Args:
            support: (k,), sorted; its live columns stay.
            w0: (p,), the weights that are compared.
            constraint: the allowed supports.
            ranks: the ranks that share the columns.
            moves: whether the weights of live columns move. Otherwise those that are zero in w0
                stay zero, and are exchanged as well.
        """
        stays = ~self.columns[support] if moves else ~self.columns[support] & (w0[support] != 0)
        if not self.count or not ranks.total(int((~stays).sum())):
            return support
        size = torch.where(self.columns, w0.abs(), 0.0)
        size[support[stays]] = torch.inf
        return constraint.largest(size, ranks.total(len(support)), ranks)

    def restore(self, w: Tensor, support: Tensor, w0: Tensor) -> Tensor:
        """Return w with the values of w0 in the dead columns of the support, (p,)."""
        if not self.count:
            return w
        kept = torch.zeros_like(self.columns).index_fill_(0, support, True)
        return torch.where(kept & self.columns, w0.to(w.dtype), w)
