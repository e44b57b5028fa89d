"""The l0 problem of one stage, which can be posed in several ways: metric, blocks, first order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from chita.curvature.source import LocalModel
from chita.pruning.metrics import Shape, metric_scale
from chita.solver.algorithm import Algorithm, Layout
from chita.solver.constraints.constraint import Constraint, keep
from chita.solver.dead_columns import ColumnSizes, DeadColumns, column_sizes
from chita.solver.division import Division
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.scaled import ScaledMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import Solution


@dataclass(frozen=True)
class Formulation:
    """How a stage problem is posed and solved.

    Attributes:
        options: how the algorithm runs.
        metric: a name in METRICS.
        block_size: the size of blocks; None for one problem over all columns.
        first_order: whether the local model has its first-order term.
    """

    options: Options
    metric: str = "plain"
    block_size: int | None = None
    first_order: bool = True


@dataclass(frozen=True)
class Measured:
    """A D^-1 and D w0 for the columns of this rank, and D, None for the plain metric."""

    matrix: GradientMatrix
    w0: Tensor
    scale: Tensor | None


@dataclass(frozen=True)
class StageProblem:
    """The problem of keeping k weights, given the local model at w0.

    Attributes:
        local: the local model of the loss around w0.
        w0: the weights of all ranks, (p,).
        k: the number of weights to keep.
        constraint: which supports are allowed.
        shape: the shapes of the layers.
        division: how the columns are divided among the ranks.
        algorithm: the algorithm that solves the problem.
        drop_dead: whether to remove the weights of dead columns first
            (`solver/dead_columns.py`).
    """

    local: LocalModel
    w0: Tensor
    k: int
    constraint: Constraint
    shape: Shape
    division: Division
    algorithm: Algorithm
    drop_dead: bool = False
    _measured: dict[str, Measured] = field(default_factory=dict)

    @property
    def matrix(self) -> GradientMatrix:
        """A, or the columns of it that this rank holds."""
        return self.local.matrix

    def solve(self, formulation: Formulation, ridge: float) -> Solution:
        """Return the solution in the plain metric, over the columns of all ranks."""
        measured = self._in_metric(formulation.metric)
        problem = Problem.build(
            measured.matrix,
            measured.w0,
            lam=ridge,
            alpha=self.local.alpha if formulation.first_order else 0.0,
            constraint=self.constraint,
            moments=self.local.moments,
        )
        part = self.dead.solve(
            problem,
            self.k,
            self.algorithm,
            options=formulation.options,
            layout=self._layout(formulation.block_size),
        )
        if measured.scale is not None:
            w0 = self.division.part(self.w0)  # dead weights come back without rounding
            w = self.dead.restore(part.w / measured.scale, part.support, w0)
            part = replace(part, w=w)
        return self.division.whole(part)

    def still(self, solution: Solution) -> Tensor:
        """Return w0 on the support of a solution, zero elsewhere, (p,)."""
        return keep(self.w0.to(solution.w.dtype), solution.support)

    def mask(self, formulation: Formulation) -> tuple[Tensor, Tensor]:
        """Return P_k(w0) in the metric of a formulation, (p,), and its support, (k,)."""
        measured, division = self._in_metric(formulation.metric), self.division
        own = self.constraint.largest(self.dead.drop(measured.w0), self.k, division.ranks)
        own = self.dead.complete(own, measured.w0, constraint=self.constraint, ranks=division.ranks)
        support = division.ranks.gather(own + division.columns.start)
        return keep(self.w0.to(measured.w0.dtype), support), support

    @cached_property
    def dead(self) -> DeadColumns:
        """The dead columns of this rank; none unless `drop_dead`."""
        if not self.drop_dead:
            return DeadColumns.none(self.matrix.p, self.matrix.device)
        return DeadColumns.find(
            self._column_sizes.nonzero,
            self.shape.sizes,
            part=self.division.columns,
            ranks=self.division.ranks,
        )

    @cached_property
    def _column_sizes(self) -> ColumnSizes:
        """One pass over A, shared by dead columns and the Fisher metric."""
        return column_sizes(self.matrix)

    def _layout(self, block_size: int | None) -> Layout:
        layout = self.division.layout
        if block_size == layout.block_size:
            return layout
        return replace(layout, block_size=block_size)

    def _in_metric(self, metric: str) -> Measured:
        """Return A and w0 in a metric; made once, since a matrix caches its last Gram product."""
        if metric not in self._measured:
            matrix, w0 = self.matrix, self.division.part(self.w0).to(self.matrix.dtype)
            if metric == "plain":
                self._measured[metric] = Measured(matrix, w0, None)
            else:
                scale = metric_scale(
                    metric,
                    matrix,
                    self.w0,
                    shape=self.shape,
                    columns=self.division.columns,
                    sizes=self._column_sizes if metric == "fisher" else None,
                )
                self._measured[metric] = Measured(ScaledMatrix(matrix, scale), scale * w0, scale)
        return self._measured[metric]
