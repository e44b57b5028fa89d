"""The weights from before the stage, for passes of the dense network beside the pruned one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor

from chita.model.weights import Weight


class DenseWeights:
    """Copies of weights, which take the place of the present ones for a while.

    Args:
        keep: whether to keep the copies of earlier sections, as passes need that start with the
            first section.
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._copies: list[tuple[Weight, Tensor]] = []

    def begin(self, weights: Iterable[Weight]) -> None:
        """Copy the weights of the next section, before it is pruned."""
        kept = self._copies if self._keep else []
        self._copies = [*kept, *((w, w.parameter.detach().clone()) for w in weights)]

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let the model use the copies within the context."""
        present = [weight.parameter.data for weight, _ in self._copies]
        try:
            for weight, copy in self._copies:
                weight.parameter.data = copy
            yield
        finally:
            for (weight, _), data in zip(self._copies, present, strict=True):
                weight.parameter.data = data
