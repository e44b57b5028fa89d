"""GMP: gradual magnitude pruning as in the state of sparsity (Gale, Elsen and Hooker, 2019)."""

from __future__ import annotations

from chita.gradual.rivals.dense_layers import bounds
from chita.gradual.rivals.incremental import Incremental

LAST_DENSITY = 0.2  # the last layer is pruned to at most 80 %


class GMP(Incremental):
    """Incremental pruning with the first layer dense and the last one at most 80 % sparse.

    This is the rule of Gale et al. for their best ResNet50 (section "Pushing the limits of
    magnitude pruning"). The layers between are pruned a little more, so that the network is as
    sparse as requested. `chita.gradual.rivals.dense_layers` drops a rule that leaves no room.
    """

    def least(self) -> list[int]:
        return bounds(self.shapes, self.k, last_density=LAST_DENSITY)
