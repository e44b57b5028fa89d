"""Exchanges of single weights: remove those that cost least, add those that gain most.

At the minimiser on a support S, removing weight i costs w_i^2 / (2 [H_SS^-1]_ii), and adding weight
j gains g_j^2 / (2 c_j), where c_j is the Schur complement of j given S. Both 1 / [H_SS^-1]_ii and
c_j lie between 1 / [H^-1]_jj and H_jj, and their geometric mean estimates either one for all rows
at once. Exchanges interact, therefore half of those that promise a gain are made together, and kept
only if the objective falls.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.layer_wise.backsolve import minimise
from chita.solver.layer_wise.layer import Layer

ROUNDS = 2  # the most rounds of exchanges
STEPS = 10  # steps of conjugate gradients after the exchanges of a round
SHARE = 0.5  # share of the exchanges that promise a gain, in the first round


def exchange(layer: Layer, w: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return a point and its support after some rounds of exchanges; Q never rises.

    Args:
        layer: the layer.
        w: the minimiser on the support, (groups, rows, i), or a point near it.
        mask: the support.
    """
    curvature = _curvature(layer)
    objective, share = layer.objective(w), SHARE
    for _ in range(ROUNDS):
        scores = torch.where(mask, w * curvature, layer.gradient(w) / curvature).abs()
        wanted = layer.pick(scores)
        if torch.equal(wanted, mask):
            break
        # A bonus for the present support leaves the exchanges with the largest gain.
        bonus = _bonus(scores, mask, wanted, share)
        other = layer.pick(torch.where(mask, scores * bonus, scores))
        moved = minimise(layer, other, w, STEPS)
        value = layer.objective(moved)
        if value < objective:
            objective, w, mask = value, moved, other
        else:
            share /= 4
    return w, mask


def _curvature(layer: Layer) -> Tensor:
    """Return the root of the estimate of c, (groups, 1, i)."""
    largest = layer.inverse.diagonal(dim1=1, dim2=2)[:, None].to(layer.w0.dtype)
    return (layer.diagonal / largest) ** 0.25


def _bonus(scores: Tensor, mask: Tensor, wanted: Tensor, share: float) -> Tensor:
    """Return the factor on the scores inside with which about a `share` of the exchanges remain.

    The weakest weights that would leave are paired with the strongest that would enter.
    """
    leaving = scores[mask & ~wanted].sort().values
    entering = scores[wanted & ~mask].sort(descending=True).values
    last = min(int(share * len(leaving)), len(leaving) - 1)
    return entering[last] / leaving[last].clamp_min(torch.finfo(scores.dtype).tiny)
