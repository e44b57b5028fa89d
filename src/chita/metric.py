"""Metrics: what "large" means for a weight when weights of different layers are compared.

A metric is a positive scale D_i for each weight. Weights are kept by |D_i w_i|, and the ridge
measures the displacement as |D d|. The paper's is plain: D = 1. The others do not trust the scale
of a weight, which a network without batch norm need not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.matrix import GradientMatrix

FLOOR = 0.01  # of the mean: under the diagonal of the Fisher, which is zero where no sample reaches


@dataclass(frozen=True)
class Shape:
    """How the p weights fall into layers and output channels.

    Attributes:
        layers: weights in each layer.
        channels: output channels of each layer, which divide its weights evenly.
    """

    layers: tuple[int, ...]
    channels: tuple[int, ...]


def plain(matrix: GradientMatrix, w0: Tensor, shape: Shape) -> Tensor:
    """D = 1: magnitude, as in the paper."""
    return torch.ones_like(w0)


def fisher(matrix: GradientMatrix, w0: Tensor, shape: Shape) -> Tensor:
    """D_i = the root of the diagonal of the Fisher: |D w|^2 is twice the saliency of OBD.

    One pass over A.
    """
    diagonal = column_square_norms(matrix) / matrix.n
    mean = matrix.ranks.sum(diagonal.sum()) / matrix.ranks.total(matrix.p)
    return (diagonal + FLOOR * mean).sqrt()


def by_layer(matrix: GradientMatrix, w0: Tensor, shape: Shape) -> Tensor:
    """D = 1 over the root mean square of the layer's weights."""
    return torch.cat([_relative(part[None]) for part in torch.split(w0, list(shape.layers))])


def by_channel(matrix: GradientMatrix, w0: Tensor, shape: Shape) -> Tensor:
    """D = 1 over the root mean square of the weights of the output channel."""
    parts = zip(torch.split(w0, list(shape.layers)), shape.channels, strict=True)
    return torch.cat([_relative(part.view(channels, -1)) for part, channels in parts])


def lamp(matrix: GradientMatrix, w0: Tensor, shape: Shape) -> Tensor:
    """D such that |D w0|^2 is the LAMP score (Lee et al. 2021): w_i^2 over the sum of all w_j^2 of
    the layer with |w_j| >= |w_i|."""
    return torch.cat([_lamp(part) for part in torch.split(w0, list(shape.layers))])


Metric = Callable[[GradientMatrix, Tensor, Shape], Tensor]

METRICS: dict[str, Metric] = {
    "plain": plain,
    "fisher": fisher,
    "layer": by_layer,
    "channel": by_channel,
    "lamp": lamp,
}


def column_square_norms(matrix: GradientMatrix) -> Tensor:
    """|a_j|^2 for each column, (p,): one pass over A."""
    norms = torch.empty(matrix.p, dtype=matrix.dtype, device=matrix.device)
    for start in range(0, matrix.p, matrix.piece):
        stop = min(start + matrix.piece, matrix.p)
        norms[start:stop] = matrix.read(start, stop).square().sum(1)
    return norms


def _relative(w: Tensor) -> Tensor:
    """1 over the root mean square of each row, for all its entries; rows of zeros have the mean."""
    size = w.square().mean(1, keepdim=True).sqrt()
    mean = size.mean().clamp_min(torch.finfo(w.dtype).tiny)
    return (1 / torch.where(size > 0, size, mean)).expand_as(w).flatten()


def _lamp(w: Tensor) -> Tensor:
    squares, order = w.square().sort(descending=True)
    rest = torch.empty_like(squares).index_copy_(0, order, squares.cumsum(0))
    return rest.clamp_min(torch.finfo(w.dtype).tiny).rsqrt()
