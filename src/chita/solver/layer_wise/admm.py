"""A support for a layer by ADMM with a growing penalty.

The dense copy X stays close to W0 in the outputs, the sparse copy Z in the constraint, and the
multiplier V pulls them together with a strength rho:

    X = (H + rho I)^-1 (H W0 - V + rho Z)
    Z = P_k(X + V / rho)
    V = V + rho (X - Z)

In units in which H has the diagonal 1, a small rho lets X remain accurate while Z explores
supports, and a large one forces Z to settle. A smooth growth of rho finds better supports than the
schedule of ALPS, which multiplies it by up to 1.3 at a time. The inverse belongs to a nearby rho: X
takes one step of iterative refinement from its last value, whose error contracts by (sqrt 2 - 1) or
better, so that few factorisations serve all rho, and float32 suffices for them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.nearby_support import NearbySupport
from chita.solver.layer_wise.scaled_curvature import scaled_curvature

FIRST = 0.05  # the first rho
GROWTH = 1.06  # of rho in each iteration
SPAN = 2.0  # the ratio of the largest to the smallest rho that one inverse serves
MOST = 150  # iterations
SETTLED = 5e-4  # the share of the support that may still change between two checks at the end
CHECK = 5  # iterations between two checks


def admm_support(layer: Layer) -> Tensor:
    """Return a good support, (groups, rows, i) bool."""
    curvature = scaled_curvature(layer)
    w0 = layer.w0 * curvature.scale
    nearby = NearbySupport(layer)
    kept = before = nearby.pick(w0)
    x, z, v = w0, w0 * kept, torch.zeros_like(w0)
    rho, served = FIRST, 0.0
    for iteration in range(1, MOST + 1):
        if rho > served * SPAN**0.5:
            served = rho * SPAN**0.5
            inverse = curvature.inverse(served)
        x = x + inverse(curvature.descent(x) - v + rho * (z - x))
        moved = x + v / rho
        kept = nearby.pick(moved)
        z = moved * kept
        v = rho * (moved - z)
        rho *= GROWTH
        if iteration % CHECK == 0:
            if int((kept ^ before).sum()) <= SETTLED * layer.k:
                break
            before = kept
    return kept
