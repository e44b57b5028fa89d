"""A support for a layer by ADMM with a growing penalty.

The dense copy X minimises the change of the outputs, and the sparse copy Z meets the constraint. A
penalty of weight rho, with the scaled multiplier U, makes the two equal:

    X = argmin Q(X) + rho/2 |X - Z + U|^2
    Z = P_k(X + U)
    U = X + U - Z

With V = W0 + U, X + U = V + (rho (Z - V) - grad Q(W0)) (H + rho I)^-1, so that an iteration takes
one product and few passes over the weights.

In units in which H has the diagonal 1, X remains accurate and the support of Z changes often while
rho is small. As rho grows the changes become rarer, and they end near rho = 1. The slower it grows,
the better the support. Therefore rho is constant for a few iterations, each of which takes one
product with the inverse. The multiplier rho U is kept when rho changes. Exchanges of single weights
afterwards find almost nothing, unless gradients couple the rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.nearby_support import NearbySupport
from chita.solver.layer_wise.scaled_curvature import scaled_curvature

FIRST = 0.1  # the first rho
EVERY = 5  # iterations with the same rho
GROWTH = 1.12  # factor of rho after them: about 2 % in each iteration
MOST = 60  # the most values of rho
SETTLED = 5e-3  # ADMM ends if at most this share of the support changes within one value


def admm(layer: Layer) -> tuple[Tensor, Tensor]:
    """Return Z, which is near the minimiser on its support, and the support, as a mask.

    Both have the shape of the weights, (groups, rows, i).
    """
    curvature = scaled_curvature(layer)
    w0 = curvature.w0
    nearby = NearbySupport(layer)
    kept = nearby.pick(w0)
    z, v, rho = w0 * kept, w0.clone(), FIRST  # v = W0 + U
    for _ in range(MOST):
        before, step = kept, curvature.step(rho)
        for number in range(EVERY):
            moved = step(z - v, v)  # X + U
            if number < EVERY - 1:
                z = nearby.shrink(moved)
            else:
                kept = nearby.pick(moved)
                z = moved * kept
            v = moved.sub_(z).add_(w0)
        if int((kept ^ before).count_nonzero()) <= SETTLED * layer.k:
            break
        rho, v = rho * GROWTH, torch.lerp(w0, v, 1 / GROWTH)
    return z / curvature.scale, kept
