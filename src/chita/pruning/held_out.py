"""The true loss on samples held out from A: what candidates are compared by."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor, nn

from chita.model.accuracy import accuracy
from chita.model.batch import Batch
from chita.model.losses import Loss, part_losses
from chita.model.weights import Weights
from chita.solver.ranks import Ranks

# What tells one form of a problem from another: one sample in so many, but this many at least.
SCOUT, SCOUT_LEAST = 4, 256

HALF = 1000  # samples that a half has at least: fewer would not tell one lambda from the next
SURE = 2.0  # standard errors by which a candidate must be better to replace another


@dataclass(frozen=True, eq=False)
class PartLosses:
    """The losses of parts of the held-out samples.

    Attributes:
        losses: (parts,) float64.
        sizes: the samples in each part, (parts,) float64.
    """

    losses: Tensor
    sizes: Tensor

    @property
    def mean(self) -> float:
        """The mean loss of all samples."""
        return float(self.losses @ self.sizes / self.sizes.sum())

    @property
    def standard_error(self) -> float:
        """The standard error of the mean, from the spread over the parts; NaN for one part."""
        share = self.sizes / self.sizes.sum()
        parts = len(share)
        if parts < 2:
            return math.nan
        spread = (share * (self.losses - self.mean)).square().sum()
        return math.sqrt(parts / (parts - 1) * float(spread))

    def less(self, other: PartLosses) -> PartLosses:
        """The differences from other losses on the same samples, part by part."""
        return PartLosses(self.losses - other.losses, self.sizes)

    def surely_below(self, other: PartLosses) -> bool:
        """Whether the mean is lower than another one by more than two standard errors.

        Both are losses of the same samples: their difference varies far less from sample to sample
        than either does. A single part shows no spread, and there any difference counts.
        """
        if not math.isfinite(other.mean):
            return math.isfinite(self.mean)
        difference = self.less(other)
        error = difference.standard_error
        return difference.mean < (0.0 if math.isnan(error) else -SURE * error)


LossesOf = Callable[[Tensor], PartLosses]  # weights (p,) -> the losses on held-out samples


class HeldOut:
    """Held-out samples, shared out among the ranks.

    Args:
        model: that is pruned.
        weights: of the model, p in all.
        batches: the samples; none, if nothing is chosen by them.
        loss: of a mini-batch; None for the default.
        ranks: those who share the samples.
        part: m, the samples of a mini-batch: losses are compared part by part.

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
        part: int = 1,
    ) -> None:
        self.batches = batches
        self.seconds = 0.0
        self._model, self._weights, self._loss, self._ranks = model, weights, loss, ranks
        self._part = part
        self._halves = _halves(batches)
        self._scouts = _first(batches, max(self.samples // SCOUT, SCOUT_LEAST))

    @property
    def samples(self) -> int:
        return sum(batch.size for batch in self.batches)

    def losses(self, w: Tensor) -> PartLosses:
        """Compute the losses of the model with the weights w, (p,)."""
        return self._with(w, self.batches)

    @property
    def halved(self) -> bool:
        """Whether there are enough samples for stages to take turns with one half and the other."""
        return len(self._halves) > 1

    def turn(self, stage: int) -> LossesOf:
        """The losses that a guarded stage chooses by: on one half, and at the next stage the other.

        The weights as they are were the best of many candidates at the last stage. On the samples
        that chose them their loss is lower than it really is, and the longer that goes on, the less
        does anything that moves them seem to be better.
        """
        half = self._halves[stage % len(self._halves)]
        return lambda w: self._with(w, half)

    def scout(self, w: Tensor) -> PartLosses:
        """Compute the losses on some of the samples only."""
        return self._with(w, self._scouts)

    def losses_now(self) -> PartLosses:
        """Compute the losses of the model as it is."""
        return self._parts(self.batches)

    def accuracy_now(self) -> float:
        """The accuracy of the model as it is, in percent; a ChitaError if it has none."""
        with self._clock():
            return accuracy(self._model, self._own(self.batches), self._ranks)

    def _with(self, w: Tensor, batches: Sequence[Batch]) -> PartLosses:
        with self._weights.temporarily(w):
            return self._parts(batches)

    def _parts(self, batches: Sequence[Batch]) -> PartLosses:
        with self._clock():
            own = part_losses(self._model, self._own(batches), self._loss, self._part)
            return PartLosses(*(self._ranks.gather(each) for each in own))

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
