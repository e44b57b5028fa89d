"""Metrics: how the size of a weight is measured when weights of different layers are compared.

A metric is a positive scale D_i for each weight. The weights with the largest |D_i w_i| are kept,
and the ridge measures the displacement as |D d|. The paper's metric is "plain", D = 1. The others
do not depend on the scale of a layer or channel, which is arbitrary in many networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chita.model.layers import WITHIN_CHANNEL, Axes
from chita.model.weights import Weights, weight_axes
from chita.solver.dead_columns import ColumnSizes, column_sizes
from chita.solver.matrix.gradient_matrix import GradientMatrix

# Added to the diagonal of the Fisher, which is zero for weights that no sample depends on: a
# fraction of its mean over the output channel, and a small fraction of its mean over the layer.
FLOOR = 0.01
LAYER_FLOOR = 1e-6
# The weights of a layer that no sample depends on must not move freely: their scaled size is at
# least this fraction of the average.
REACH = 0.01


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


def by_layer(w: Tensor) -> Tensor:
    """Return D = 1 over the root mean square of the layer's weights."""
    return _inverse_size(w.square().mean().expand_as(w))


def by_channel(w: Tensor) -> Tensor:
    """Return D = 1 over the root mean square of the weights of the output channel."""
    return _inverse_size(_channel_means(w.square()).expand_as(w))


def lamp(w: Tensor) -> Tensor:
    """Return D such that |D w|^2 is the LAMP score (Lee et al. 2021): w_i^2 over the sum of all
    w_j^2 of the layer with |w_j| >= |w_i|."""
    squares, order = w.flatten().square().sort(descending=True, stable=True)
    return _inverse_size(torch.empty_like(squares).index_copy_(0, order, squares.cumsum(0)))


# Metrics that depend on the weights only: the weights of a layer, along its axes -> its D.
OF_WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer": by_layer,
    "channel": by_channel,
    "lamp": lamp,
}
METRICS = ("plain", "fisher", *OF_WEIGHTS)


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
    floor = FLOOR * _channel_means(diagonal) + LAYER_FLOOR * diagonal.mean()
    return (diagonal + floor).clamp_min(torch.finfo(diagonal.dtype).tiny).sqrt()


def _channel_means(layer: Tensor) -> Tensor:
    """Return the mean over the weights of each output channel; it broadcasts to the layer."""
    return layer.mean(WITHIN_CHANNEL, keepdim=True)


def _inverse_size(squares: Tensor) -> Tensor:
    """Return 1 over the root; zeros count as the least positive value."""
    least = squares[squares > 0].amin() if bool((squares > 0).any()) else squares.new_ones(())
    return squares.clamp_min(least).rsqrt()
