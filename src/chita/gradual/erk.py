"""Erdős-Rényi-Kernel: how dense each layer is when training starts sparse (Mocanu; Evci)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from chita.gradual.layer_counts import share_out


def erk_counts(shapes: Sequence[Sequence[int]], k: int) -> list[int]:
    """The weights kept in each layer, k in all.

    A layer's density is proportional to (n_in + n_out + w + h) / (n_in n_out w h), the sum of its
    shape over its size, so that its number of weights is proportional to the sum alone. Layers
    that would be more than dense are dense.

    Args:
        shapes: of the layers' weights: (out, in) or (out, in, h, w).
        k: how many in all.
    """
    return share_out(k, [sum(shape) for shape in shapes], [math.prod(shape) for shape in shapes])
