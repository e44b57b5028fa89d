"""The layers that a method keeps dense, and the number of weights that each layer keeps.

Several papers exempt small layers from pruning. A rule here is a list of lower bounds, one for each
layer; the layers without a bound share what is left of the k weights in proportion to their size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from chita.solver.constraints.layer_counts import share_out

# All bounds together may take up this share of the k weights. The first layer of an MLP has nearly
# all of its weights: kept dense, it would leave nothing for the other layers.
ROOM = 0.5

Shape = Sequence[int]


def bounds(
    shapes: Sequence[Shape], k: int, *, depthwise: bool = False, last_density: float = 0.0
) -> list[int]:
    """Return the fewest weights that each layer keeps if the first layer is dense.

    The rules are applied in the order first layer, depthwise layers, last layer. A rule that does
    not leave room for the other layers is dropped.

    Args:
        shapes: the shape of each layer's weights, (out, in) or (out, in, h, w).
        k: the number of weights kept in all layers together.
        depthwise: keep depthwise convolutions dense as well.
        last_density: the smallest share of the last layer's weights that is kept.
    """
    sizes = [math.prod(shape) for shape in shapes]
    rules: list[Mapping[int, int]] = [{0: sizes[0]}]
    if depthwise:
        rules.append({i: sizes[i] for i, shape in enumerate(shapes) if is_depthwise(shape)})
    last = len(sizes) - 1
    rules.append({last: math.ceil(last_density * sizes[last])})
    least = [0] * len(sizes)
    for rule in rules:
        raised = [max(count, rule.get(i, 0)) for i, count in enumerate(least)]
        if sum(raised) <= ROOM * k:
            least = raised
    return least


def is_depthwise(shape: Shape) -> bool:
    """Return whether a shape is that of a depthwise convolution: (out, 1, ...).

    A convolution of single-channel images has this shape, too. It is the first layer.
    """
    return len(shape) > 2 and shape[1] == 1


def bounded_counts(sizes: Sequence[int], k: int, least: Sequence[int]) -> list[int]:
    """Return the weights kept in each layer, k in total: one sparsity, except at a bound.

    Args:
        sizes: the number of weights of each layer.
        k: the number of kept weights in total, at least the sum of the bounds.
        least: the bounds, as `bounds` returns them for this k or a smaller one.
    """
    return share_out(k, sizes, sizes, least)
