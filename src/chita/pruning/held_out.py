"""The true loss on samples that are held out from A."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from torch import Tensor, nn

from chita.model.accuracy import accuracy
from chita.model.fast_arithmetic import fast_arithmetic, fast_format
from chita.model.forward import FORWARD_ONLY_FACTOR, device_of
from chita.model.losses import Loss
from chita.model.part_losses import part_losses
from chita.model.samples.batch import Batch, first_samples, tensors_of
from chita.model.weights import Weights
from chita.solver.ranks import Ranks

# Screening uses one held-out sample in SCREENING_PART, but at least SCREENING_LEAST samples.
SCREENING_PART, SCREENING_LEAST = 4, 256

HALF = 1000  # the least samples of a half: with fewer, neighbouring lambdas look alike
LONG_PASS = 0.5  # seconds from which the preparations of a first forward pass do not matter
SURE = 2.0  # standard errors by which a candidate must be better to replace another


@dataclass(frozen=True, eq=False)
class PartLosses:
    """The losses of the parts into which held-out samples are divided.

    Attributes:
        losses: the mean loss of each part, (parts,) float64.
        sizes: the number of samples in each part, (parts,) float64.
    """

    losses: Tensor
    sizes: Tensor

    @property
    def mean(self) -> float:
        """The mean loss over all samples."""
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
        """Return the differences from other losses on the same samples, part by part."""
        return PartLosses(self.losses - other.losses, self.sizes)

    def surely_below(self, other: PartLosses) -> bool:
        """Return whether the mean is lower than another one by more than two standard errors.

        Both are losses of the same samples, so that their difference varies far less from sample to
        sample than either of them. With a single part there is no spread, and any difference
        counts.
        """
        if not math.isfinite(other.mean):
            return math.isfinite(self.mean)
        difference = self.less(other)
        error = difference.standard_error
        return difference.mean < (0.0 if math.isnan(error) else -SURE * error)


LossesOf = Callable[[Tensor], PartLosses]  # weights (p,) -> the losses on held-out samples


@dataclass(frozen=True)
class Measurement:
    """A network, measured on held-out samples.

    Attributes:
        loss: the mean loss; None without samples.
        loss_error: its standard error; None if there are too few samples to estimate it.
        accuracy: in percent; None unless the floor has a min_accuracy.
        accepted: whether the floor holds.
    """

    loss: float | None = None
    loss_error: float | None = None
    accuracy: float | None = None
    accepted: bool = True


class HeldOut:
    """Held-out samples, divided among the ranks.

    Args:
        model: the model that is pruned.
        weights: its prunable weights, p in total.
        batches: the samples; may be empty.
        loss: the loss of a mini-batch; None for the default.
        ranks: the ranks that share the samples.
        part: m, the samples of a mini-batch, whose losses are compared one by one.
        fast: whether forward passes use the faster arithmetic of the training.

    Attributes:
        seconds: the time that all losses have taken so far.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Weights,
        batches: Sequence[Batch],
        loss: Loss | None,
        ranks: Ranks,
        part: int = 1,
        *,
        fast: bool = False,
    ) -> None:
        self.batches = [batch.map(fast_format) for batch in batches] if fast else batches
        self._fast = fast
        self.seconds = 0.0
        self._model, self._weights, self._loss, self._ranks = model, weights, loss, ranks
        self._part, self._at_once = part, self._samples_of_pass()
        self._halves = _halves(self.batches)
        screened = max(self.samples // SCREENING_PART, SCREENING_LEAST)
        self._screening = list(first_samples(self.batches, screened))

    @property
    def samples(self) -> int:
        """The number of held-out samples."""
        return sum(batch.size for batch in self.batches)

    def losses(self, w: Tensor) -> PartLosses:
        """Compute the losses of the model with the weights w, (p,)."""
        return self._with(w, self.batches)

    @property
    def halved(self) -> bool:
        """Whether there are enough samples for stages to alternate between two halves."""
        return len(self._halves) > 1

    def half(self, stage: int) -> LossesOf:
        """Return the losses on one half of the samples, alternating from stage to stage.

        The current weights were chosen at the last stage as the best of many candidates. On the
        samples that chose them their loss is biased low; if the same samples chose again, every
        change would seem to be worse.
        """
        half = self._halves[stage % len(self._halves)]
        return lambda w: self._with(w, half)

    def screening_losses(self, w: Tensor) -> PartLosses:
        """Compute the losses of the model with the weights w, (p,), on a part of the samples."""
        return self._with(w, self._screening)

    def measure(self) -> Measurement:
        """Measure the model with its current weights."""
        if not self.batches:
            return Measurement()
        losses = self.losses_now()
        error = losses.standard_error
        return Measurement(losses.mean, error if math.isfinite(error) else None)

    def losses_now(self) -> PartLosses:
        """Compute the losses of the model with its current weights."""
        return self._parts(self.batches)

    def sample_seconds(self) -> float:
        """Return about how long a forward pass takes for one sample; 0 without samples.

        A short pass is repeated, since the first one includes preparations of the libraries.
        """
        first, seconds = self.batches[:1], 0.0
        for _ in range(2):
            start = time.perf_counter()
            with self._arithmetic():
                part_losses(self._model, first, self._loss, self._part)
            seconds = time.perf_counter() - start
            if seconds > LONG_PASS:
                break
        return seconds / max(sum(batch.size for batch in first), 1)

    def accuracy_now(self) -> float:
        """Compute the accuracy of the model in percent.

        Raises:
            ChitaError: the model is not a classifier.
        """
        with self._clock():
            return accuracy(self._model, self._own(self.batches), self._ranks)

    def _with(self, w: Tensor, batches: Sequence[Batch]) -> PartLosses:
        with self._weights.temporarily(w):
            return self._parts(batches)

    def _parts(self, batches: Sequence[Batch]) -> PartLosses:
        with self._clock(), self._arithmetic():
            own = part_losses(
                self._model, self._own(batches), self._loss, self._part, at_once=self._at_once
            )
            return PartLosses(*(self._ranks.gather(each) for each in own))

    def _samples_of_pass(self) -> int:
        """Return the samples of a forward pass: on a GPU many, since small ones leave it idle.

        Token ids have large outputs, which need more memory than the activations. The losses of
        dicts, which contain the labels, need a pass for each part.
        """
        if not self.batches or device_of(self._model).type != "cuda":
            return 0
        if isinstance(self.batches[0].content, dict):
            return 0
        inputs = tensors_of(self.batches[0].inputs)[0]
        return FORWARD_ONLY_FACTOR * self.batches[0].size if inputs.is_floating_point() else 0

    def _arithmetic(self) -> AbstractContextManager[object]:
        place = device_of(self._model)
        return fast_arithmetic(place, self._model.parameters()) if self._fast else nullcontext()

    def _own(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        return batches[self._ranks.rank :: self._ranks.size]

    @contextmanager
    def _clock(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start


def _halves(batches: Sequence[Batch]) -> list[Sequence[Batch]]:
    """Return every second batch and the others, or all batches if a half would be too small."""
    halves = [batches[::2], batches[1::2]]
    enough = all(sum(batch.size for batch in half) >= HALF for half in halves)
    return halves if enough else [batches]
