"""Scales of the weights of a layer, which make weights of different layers comparable.

Each function maps the weights of a layer, along its axes (`model/layers.py`), to a positive scale D
for each of them. Weights are then compared by |D_i w_i|.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from chita.model.layers import WITHIN_CHANNEL


def by_layer(w: Tensor) -> Tensor:
    """Return D = 1 over the root mean square of the layer's weights."""
    return _inverse_size(w.square().mean().expand_as(w))


def by_channel(w: Tensor) -> Tensor:
    """Return D = 1 over the root mean square of the weights of the output channel."""
    return _inverse_size(channel_means(w.square()).expand_as(w))


def lamp(w: Tensor) -> Tensor:
    """Return D such that |D w|^2 is the LAMP score (Lee et al. 2021): w_i^2 over the sum of all
    w_j^2 of the layer with |w_j| >= |w_i|."""
    squares, order = w.flatten().square().sort(descending=True, stable=True)
    return _inverse_size(torch.empty_like(squares).index_copy_(0, order, squares.cumsum(0)))


def channel_means(layer: Tensor) -> Tensor:
    """Return the mean over the weights of each output channel; it broadcasts to the layer."""
    return layer.mean(WITHIN_CHANNEL, keepdim=True)


def _inverse_size(squares: Tensor) -> Tensor:
    """Return 1 over the root; zeros count as the least positive value."""
    least = squares[squares > 0].amin() if bool((squares > 0).any()) else squares.new_ones(())
    return squares.clamp_min(least).rsqrt()


# The scales by name: those of the metrics that depend on the weights only.
OF_WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer": by_layer,
    "channel": by_channel,
    "lamp": lamp,
}
