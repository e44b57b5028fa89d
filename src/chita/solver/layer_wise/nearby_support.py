"""The k largest entries of matrices that change a little from one to the next.

Finding the k-th largest magnitude of a whole layer takes longer than a product with H. It changes
little between two iterations of ADMM, and is therefore searched among the entries near its last
value. Between two exact supports, about k entries suffice: one step of Newton's method on the
number of entries above a threshold takes a tenth of the time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.constraints.constraint import keep_from
from chita.solver.layer_wise.layer import Layer

BAND = 0.05  # the entries within this relative distance of the last threshold are searched


class NearbySupport:
    """The allowed supports of a layer with the largest entries, for one matrix after the other.

    Args:
        layer: the layer.
    """

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._threshold: Tensor | None = None
        self._near = 0  # the entries in the band around it

    def pick(self, scores: Tensor) -> Tensor:
        """Return the mask of the largest |scores|: what `Layer.pick` returns, up to ties."""
        layer = self._layer
        if not layer.whole or not 0 < layer.k < scores.numel():
            return layer.pick(scores)
        magnitude = scores.abs().flatten()
        self._threshold = self._find(magnitude)
        return keep_from(magnitude, self._threshold, layer.k).view_as(scores)

    def shrink(self, scores: Tensor) -> Tensor:
        """Return a matrix with about k of its largest entries, and zero elsewhere.

        For a pattern, these are the entries of `pick`.
        """
        if self._threshold is None:
            return scores * self.pick(scores)
        surplus = int((scores.abs() >= self._threshold).count_nonzero()) - self._layer.k
        if 2 * abs(surplus) > self._near:  # the threshold leaves the band
            return scores * self.pick(scores)
        self._threshold *= 1 + 2 * BAND * surplus / max(self._near, 1)
        return torch.hardshrink(scores, float(self._threshold))

    def _find(self, magnitude: Tensor) -> Tensor:
        """Return the k-th largest magnitude, a scalar tensor."""
        if self._threshold is not None:
            low, high = self._threshold * (1 - BAND), self._threshold * (1 + BAND)
            above = magnitude > high
            near = magnitude[(magnitude >= low) & ~above]
            wanted, self._near = self._layer.k - int(above.count_nonzero()), len(near)
            if 0 < wanted <= len(near):
                return _smallest_of(near, wanted)
        return _smallest_of(magnitude, self._layer.k)


def _smallest_of(numbers: Tensor, count: int) -> Tensor:
    """Return the smallest of the largest `count` numbers, a scalar tensor."""
    place = len(numbers) - count
    if numbers.is_cuda:  # which sorts in less time than it selects
        return numbers.sort().values[place]
    return numbers.kthvalue(place + 1).values
