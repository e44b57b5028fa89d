"""GMP: gradual magnitude pruning as in the state of sparsity (Gale, Elsen and Hooker, 2019)."""

from __future__ import annotations

import math

from chita.gradual.incremental import Incremental
from chita.layer_counts import share_out

LAST_DENSITY = 0.2  # the last layer is pruned to at most 80 %


class GMP(Incremental):
    """Incremental pruning with the first layer dense and the last one at most 80 % sparse.

    The layers between are pruned a little more, so that the whole is as sparse as asked for. A
    first layer that would take more than half of what may be kept is pruned like the others: in
    an MLP it has nearly all the weights.
    """

    def counts(self, k: int) -> list[int]:
        sizes = self.weights.sizes
        last, fixed = len(sizes) - 1, dict[int, int]()
        if sizes[0] <= k / 2:
            fixed[0] = sizes[0]
        if k / sum(sizes) < LAST_DENSITY:
            fixed[last] = math.ceil(sizes[last] * LAST_DENSITY)
        free = [size for layer, size in enumerate(sizes) if layer not in fixed]
        left = k - sum(fixed.values())
        if not 0 <= left <= sum(free):  # so few layers that the rules leave no room
            return super().counts(k)
        shared = iter(share_out(left, free, free))
        return [fixed[i] if i in fixed else next(shared) for i in range(len(sizes))]
