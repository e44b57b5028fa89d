"""The true loss on samples held out from A: what candidates are chosen by."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from chita.batch import Batch
from chita.gradients import Loss, total_loss
from chita.ranks import ALONE, Ranks
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

    Attributes:
        ranks: those who share the samples.
        seconds: what all losses have taken so far.
    """

    def __init__(
        self, model: nn.Module, weights: Weights, batches: Sequence[Batch], loss: Loss | None
    ) -> None:
        self.batches = batches
        self.ranks: Ranks = ALONE
        self.seconds = 0.0
        self._model, self._weights, self._loss = model, weights, loss
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

    def _mean(self, batches: Sequence[Batch]) -> float:
        start = time.perf_counter()
        own = batches[self.ranks.rank :: self.ranks.size]
        total, samples = total_loss(self._model, own, self._loss)
        both = self.ranks.sum(torch.tensor([total, samples], dtype=torch.float64))
        self.seconds += time.perf_counter() - start
        return float(both[0] / both[1])


def _first(batches: Sequence[Batch], samples: int) -> list[Batch]:
    """The first batches, until so many samples are in them."""
    before = accumulate((batch.size for batch in batches), initial=0)
    return [batch for batch, seen in zip(batches, before, strict=False) if seen < samples]
