"""The l0 problem of one stage, in one of several metrics.

A metric is a positive scale D_i for each weight: weights are kept by |D_i w_i|, and the ridge
measures the displacement as |D d|. The paper's metric is plain, D = 1. The others do not depend on
the scale of the weights, which differs between layers in a network without batch norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from chita.curvature.source import LocalModel
from chita.model.layers import Axes
from chita.model.weight_scales import OF_WEIGHTS, channel_means
from chita.model.weights import Weights, weight_axes
from chita.solver.algorithm import Algorithm, Layout, UpdateOnly
from chita.solver.constraints.constraint import Constraint, keep
from chita.solver.dead_columns import ColumnSizes, DeadColumns, column_sizes
from chita.solver.division import Division
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.scaled import ScaledMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import Solution

METRICS = ("plain", "fisher", *OF_WEIGHTS)
NEEDS_GRADIENTS = ("fisher",)  # metrics that depend on A
# Added to the diagonal of the Fisher, which is zero for weights that no sample depends on: a
# fraction of its mean over the output channel, and a small fraction of its mean over the layer.
FLOOR = 0.01
LAYER_FLOOR = 1e-6
# The weights of a layer that no sample depends on must not move freely: their scaled size is at
# least this fraction of the average.
REACH = 0.01
EMPTIED = 0.1  # a layer is emptied below this part of the share that all weights keep


@dataclass(frozen=True)
class Shape:
    """How the p weights are divided into layers and output channels.

    Attributes:
        layers: the axes of each layer's weight.
    """

    layers: tuple[Axes, ...]

    @classmethod
    def of(cls, model: nn.Module, weights: Weights) -> Shape:
        """Return the shape of the prunable weights of a model."""
        return cls(tuple(weight_axes(model, weights).values()))

    @property
    def sizes(self) -> list[int]:
        """The number of weights in each layer."""
        return [math.prod(axes) for axes in self.layers]

    def map(self, function: Callable[[Tensor], Tensor], vector: Tensor) -> Tensor:
        """Apply a function to each layer's part of a vector (p,), viewed along its axes."""
        parts = torch.split(vector, self.sizes)
        seen = [part.view(axes) for part, axes in zip(parts, self.layers, strict=True)]
        return torch.cat([function(layer).flatten() for layer in seen])


def metric_scale(
    name: str,
    matrix: GradientMatrix,
    w0: Tensor,
    *,
    shape: Shape,
    columns: slice,
    sizes: ColumnSizes | None = None,
) -> Tensor:
    """Return D for the columns of this rank, (p of this rank,).

    Args:
        name: a name in METRICS except "plain", which needs no scale.
        matrix: A, the columns of this rank.
        w0: the weights of all ranks, (p,).
        shape: the shape of all layers.
        columns: the columns of this rank.
        sizes: the sizes of these columns, if known; otherwise the Fisher metric takes a pass over
            A.
    """
    if name in OF_WEIGHTS:
        return shape.map(OF_WEIGHTS[name], w0.to(matrix.dtype))[columns]
    sizes = column_sizes(matrix) if sizes is None else sizes
    diagonal = matrix.ranks.gather(sizes.squares / matrix.n)
    scale = shape.map(fisher, diagonal)
    return torch.maximum(scale, _reach(scale, w0.to(scale.dtype), shape))[columns] / sizes.unit


def _reach(scale: Tensor, w0: Tensor, shape: Shape) -> Tensor:
    """Return the least D of the weights in each layer, (p,); it is independent of their scale."""
    typical = (scale * w0).square().mean().sqrt()
    sizes = shape.map(lambda w: w.square().mean().sqrt().expand_as(w), w0)
    return torch.where(sizes > 0, REACH * typical / sizes, 0.0)


def fisher(diagonal: Tensor) -> Tensor:
    """Return D = the root of the diagonal of the Fisher: |D w|^2 is twice the saliency of OBD."""
    floor = FLOOR * channel_means(diagonal) + LAYER_FLOOR * diagonal.mean()
    return (diagonal + floor).clamp_min(torch.finfo(diagonal.dtype).tiny).sqrt()


@dataclass(frozen=True)
class Formulation:
    """How a stage problem is posed and solved.

    Attributes:
        options: how the algorithm runs.
        metric: a name in METRICS.
        block_size: the size of blocks; None for one problem over all columns.
        first_order: whether the local model has its first-order term.
        layer_share: t, the share of the layers' inputs where gradients are added to them.
    """

    options: Options
    metric: str = "plain"
    block_size: int | None = None
    first_order: bool = True
    layer_share: float = 1.0


@dataclass(frozen=True)
class ScaledTerms:
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
    _scaled: dict[str, ScaledTerms] = field(default_factory=dict)

    @property
    def matrix(self) -> GradientMatrix:
        """A, or the columns of it that this rank holds."""
        return self.local.matrix

    def solve(self, formulation: Formulation, ridge: float) -> Solution:
        """Return the solution in the plain metric, over the columns of all ranks."""
        return self._solve(formulation, ridge, self.algorithm)

    def update(self, formulation: Formulation, ridge: float, solution: Solution) -> Solution:
        """Return the minimiser for another lambda on the support of a solution.

        Lambda hardly changes the support, and one Gram product serves all lambdas on it. Blocks are
        solved anew.
        """
        if formulation.block_size is not None:
            return self.solve(formulation, ridge)
        columns = self.division.columns
        own = (solution.support >= columns.start) & (solution.support < columns.stop)
        return self._solve(formulation, ridge, UpdateOnly(solution.support[own] - columns.start))

    def _solve(self, formulation: Formulation, ridge: float, algorithm: Algorithm) -> Solution:
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
            algorithm,
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
        own = self.dead.complete(
            own, measured.w0, constraint=self.constraint, ranks=division.ranks, moves=False
        )
        support = division.ranks.gather(own + division.columns.start)
        return keep(self.w0.to(measured.w0.dtype), support), support

    def empties_layer(self, support: Tensor) -> bool:
        """Return whether a support keeps far less of some layer than of the whole network.

        Args:
            support: the indices of the kept weights, (k,).

        Returns:
            Whether the kept share of a layer is less than EMPTIED of that of all weights. A share
            is relative to the weights that are not zero in w0.
        """
        before = torch.stack(
            [part.count_nonzero() for part in torch.split(self.w0, self.shape.sizes)]
        )
        ends = before.new_tensor(self.shape.sizes).cumsum(0)
        layers = torch.bucketize(support.to(ends), ends, right=True)
        after = torch.bincount(layers, minlength=len(ends))
        shares = after / before.clamp_min(1)
        least = EMPTIED * after.sum() / before.sum().clamp_min(1)
        return bool((shares < least)[before > 0].any())

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

    def _in_metric(self, metric: str) -> ScaledTerms:
        """Return A and w0 in a metric; made once, since a matrix caches its last Gram product."""
        if metric not in self._scaled:
            matrix, w0 = self.matrix, self.division.part(self.w0).to(self.matrix.dtype)
            if metric == "plain":
                self._scaled[metric] = ScaledTerms(matrix, w0, None)
            else:
                scale = metric_scale(
                    metric,
                    matrix,
                    self.w0,
                    shape=self.shape,
                    columns=self.division.columns,
                    sizes=self._column_sizes if metric == "fisher" else None,
                )
                self._scaled[metric] = ScaledTerms(ScaledMatrix(matrix, scale), scale * w0, scale)
        return self._scaled[metric]
