"""A support for a layer by ADMM with a growing penalty.

The dense copy X stays close to W0 in the outputs, the sparse copy Z in the constraint, and the
scaled multiplier U pulls them together with a strength rho:

    X = argmin Q(X) + rho/2 |X - Z + U|^2 = W0 + (rho (Z - U - W0) - grad Q(W0)) (H + rho I)^-1
    Z = P_k(X + U)
    U = X + U - Z

In units in which H has the diagonal 1, a small rho lets X remain accurate while Z explores
supports, and a large one forces Z to settle, which happens near rho = 1. The slower rho grows, the
better the support. Therefore the iterations are made cheap: rho is constant for a few of them, and
each takes one product with the inverse. The multiplier rho U is kept when rho changes. Exchanges of
single weights afterwards find almost nothing, unless gradients couple the rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.nearby_support import NearbySupport
from chita.solver.layer_wise.scaled_curvature import scaled_curvature

FIRST = 0.1  # the first rho
EVERY = 5  # iterations with the same rho
GROWTH = 1.12  # of rho after them: about 2 % in each iteration
MOST = 60  # values of rho
SETTLED = 5e-3  # the share of the support that may still change within one value at the end


def admm(layer: Layer) -> tuple[Tensor, Tensor]:
    """Return Z, which is near the minimiser on its support, and the support, as a mask.

    Both have the shape of the weights, (groups, rows, i).
    """
    curvature = scaled_curvature(layer)
    w0 = curvature.w0
    slope = curvature.descent(w0)  # zero without gradients
    nearby = NearbySupport(layer)
    kept = nearby.pick(w0)
    z, u, rho = w0 * kept, torch.zeros_like(w0), FIRST
    for _ in range(MOST):
        before, inverse = kept, curvature.inverse(rho)
        for step in range(EVERY):
            moved = inverse((z - u).sub_(w0).mul_(rho).add_(slope)).add_(w0).add_(u)  # X + U
            if step < EVERY - 1:
                z = nearby.shrink(moved)
            else:
                kept = nearby.pick(moved)
                z = moved * kept
            u = moved - z
        if int((kept ^ before).count_nonzero()) <= SETTLED * layer.k:
            break
        rho, u = rho * GROWTH, u / GROWTH
    return z / curvature.scale, kept
