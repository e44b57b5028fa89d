"""The range test: find the relative rate of the training by the loss on held-out samples.

The test trains a pruned network for a few steps with several rates. It starts in the middle of the
grid and moves by a factor of about 3 while the held-out loss falls. The network must be pruned to
more than the first sparsity of a run: a nearly dense network has nothing to recover, and the
smallest rate would win.
"""

from __future__ import annotations

import math
from collections.abc import Callable

HALF_DECADES = range(-8, -1)  # rate = 10^(i/2), 1e-4 to 0.1
MIDDLE = -4  # rate = 0.01
SLOWEST = 10 ** (HALF_DECADES[0] / 2)
TEST_STEPS = 20

LossAt = Callable[[float], float]  # rate -> the held-out loss after the steps of the test


def find_rate(loss_at: LossAt) -> float | None:
    """Return the best rate of the grid; None if no rate gives a finite loss."""
    losses: dict[int, float] = {}

    def loss(step: int) -> float:
        if step not in losses:
            found = loss_at(10 ** (step / 2)) if step in HALF_DECADES else math.inf
            losses[step] = found if math.isfinite(found) else math.inf
        return losses[step]

    best = MIDDLE
    while math.isinf(loss(best)) and best > HALF_DECADES[0]:
        best -= 1
    direction = 1 if loss(best + 1) < loss(best) else -1
    while loss(best + direction) < loss(best):
        best += direction
    return 10 ** (best / 2) if math.isfinite(loss(best)) else None
