"""The true loss on samples held out from A: what candidates are chosen by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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

HALF = 1000  # samples that a half has at least: fewer would not tell one lambda from the next


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
        self._halves = _halves(batches)
        self._scouts = _first(batches, max(sum(b.size for b in batches) // SCOUT, SCOUT_LEAST))

    def loss(self, w: Tensor) -> float:
        """The mean loss of the model with the weights w, (p,)."""
        return self._with(w, self.batches)

    @property
    def halved(self) -> bool:
        """Whether there are enough samples for stages to take turns with one half and the other."""
        return len(self._halves) > 1

    def turn(self, stage: int) -> Callable[[Tensor], float]:
        """The loss that a guarded stage chooses by: on one half, and at the next stage the other.

        The weights as they are were the best of many candidates at the last stage. On the samples
        that chose them their loss is lower than it really is, and the longer that goes on, the less
        does anything that moves them seem to be better.
        """
        half = self._halves[stage % len(self._halves)]
        return lambda w: self._with(w, half)

    def scout(self, w: Tensor) -> float:
        """The mean loss on a part of the samples."""
        return self._with(w, self._scouts)

    def loss_now(self) -> float:
        """The loss of the model as it is."""
        return self._mean(self.batches)

    def accuracy_now(self) -> float:
        """The accuracy of the model as it is, in percent; a ChitaError if it has none."""
        with self._clock():
            return accuracy(self._model, self._own(self.batches), self._ranks)

    def _with(self, w: Tensor, batches: Sequence[Batch]) -> float:
        with self._weights.lent(w):
            return self._mean(batches)

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


def _halves(batches: Sequence[Batch]) -> list[Sequence[Batch]]:
    """Every second batch and the others, or all of them if that would be too few."""
    halves = [batches[::2], batches[1::2]]
    enough = all(sum(batch.size for batch in half) >= HALF for half in halves)
    return halves if enough else [batches]


def _first(batches: Sequence[Batch], samples: int) -> list[Batch]:
    """The first batches, until so many samples are in them."""
    before = accumulate((batch.size for batch in batches), initial=0)
    return [batch for batch, seen in zip(batches, before, strict=False) if seen < samples]
