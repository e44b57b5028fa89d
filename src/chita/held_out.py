"""The true loss on samples held out from A: what candidates are chosen by."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from torch import Tensor, nn

from chita.batch import Batch
from chita.evaluate import accuracy
from chita.gradients import Loss, mean_loss
from chita.ranks import Ranks
from chita.weights import Weights

# What tells one form of a problem from another: one sample in so many, but this many at least.
SCOUT, SCOUT_LEAST = 4, 256


class HeldOut:
    """Held-out samples, shared out among the ranks.

    Args:
        model: that is pruned.
        weights: of the model, p in all.
        batches: the samples; none, if nothing is chosen by them.
        loss: of a batch; None for the default.
        ranks: those who share the samples.

    Attributes:
        seconds: what all losses have taken so far.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Weights,
        batches: Sequence[Batch],
        loss: Loss | None,
        ranks: Ranks,
    ) -> None:
        self.batches = batches
        self.seconds = 0.0
        self._model, self._weights, self._loss, self._ranks = model, weights, loss, ranks
        self._scouts = _first(batches, max(sum(b.size for b in batches) // SCOUT, SCOUT_LEAST))

    def loss(self, w: Tensor) -> float:
        """The mean loss of the model with the weights w, (p,)."""
        with self._weights.lent(w):
            return self._mean(self.batches)

    def scout(self, w: Tensor) -> float:
        """The same on a part of the samples."""
        with self._weights.lent(w):
            return self._mean(self._scouts)

    def loss_now(self) -> float:
        """The loss of the model as it is."""
        return self._mean(self.batches)

    def accuracy_now(self) -> float:
        """The accuracy of the model as it is, in percent; a ChitaError if it has none."""
        with self._clock():
            return accuracy(self._model, self._own(self.batches), self._ranks)

    def _mean(self, batches: Sequence[Batch]) -> float:
        with self._clock():
            return mean_loss(self._model, self._own(batches), self._loss, self._ranks)

    def _own(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        return batches[self._ranks.rank :: self._ranks.size]

    @contextmanager
    def _clock(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start


def _first(batches: Sequence[Batch], samples: int) -> list[Batch]:
    """The first batches, until so many samples are in them."""
    before = accumulate((batch.size for batch in batches), initial=0)
    return [batch for batch, seen in zip(batches, before, strict=False) if seen < samples]
