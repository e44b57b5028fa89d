"""Training that is undone if it does not help: after a stage, in a range test, for a candidate.

If the loss on held-out samples does not fall, the network is restored bit for bit.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from chita.model.weights import Weights
from chita.pruning.held_out import PartLosses
from chita.pruning.recovery.range_test import SLOWEST, TEST_STEPS, find_rate
from chita.pruning.recovery.snapshot import Snapshot
from chita.pruning.recovery.training import Progress, RecoveryTraining
from chita.pruning.recovery.updates import Masks

logger = logging.getLogger(__name__)

TIMED_STEPS = 3  # the first one is not timed
TEST_KEY = -1  # determines the order of the samples in tests; stages have their numbers as keys
DIVERGED = (
    "training makes the held-out loss NaN or infinite, though all samples have a finite one "
    "before; give a loss with finite gradients, or a model in float32 or float64"
)


@dataclass(frozen=True)
class Recovered:
    """The outcome of a training.

    Attributes:
        before: the losses on held-out samples before the training.
        after: the losses after it, of the network that was kept.
        kept: whether the loss fell; otherwise the network was restored.
        steps: the training steps.
        task: the name of the task that was trained on.
        finite: whether the loss was finite after it, also if the network was restored.
    """

    before: PartLosses
    after: PartLosses
    kept: bool
    steps: int
    task: str
    finite: bool = True


class GuardedTraining:
    """The recovery of a network that is pruned in stages.

    Args:
        model: the model that is pruned.
        weights: its prunable weights, p in total.
        training: the training of the parameters that are not pruned.
        losses_now: computes the losses of the model on held-out samples.

    Attributes:
        losses_now: computes the losses of the model on held-out samples.
        check_seconds: the time of the last losses on held-out samples.
        seconds: the time of all training so far.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Weights,
        training: RecoveryTraining,
        losses_now: Callable[[], PartLosses],
    ) -> None:
        self._model, self._weights = model, weights
        self._training, self.losses_now = training, losses_now
        self.check_seconds = self.seconds = 0.0

    @property
    def step_seconds(self) -> float:
        """The time of a training step."""
        return self._training.step_seconds

    def find_rate(
        self,
        w: Tensor,
        *,
        steps: int = TEST_STEPS,
        tested: Callable[[], None] | None = None,
    ) -> float | None:
        """Return the relative rate for the network with the weights w, (p,).

        Args:
            w: the weights.
            steps: the steps with each rate.
            tested: called after each test of a rate.
        """

        def loss_at(rate: float) -> float:
            found = self.worth(w, steps=steps, rate=rate).mean
            logger.info("relative rate %.2g: held-out loss %.4g after %d steps", rate, found,
                        steps)  # fmt: skip
            if tested is not None:
                tested()
            return found

        with self._weights.temporarily(w):
            before = self.losses_now().mean
        return find_rate(loss_at, before)

    def time_step(self) -> float:
        """Return the seconds of a step, from a short training that is undone."""
        self.worth(self._weights.vector(), steps=TIMED_STEPS, rate=SLOWEST)
        return self.step_seconds

    def use_batch(self, batch: int) -> None:
        """Train on smaller batches from now on."""
        self._training.use_batch(batch)

    def release(self) -> None:
        """Free the memory that only trainings need."""
        self._training.release()

    def worth(self, w: Tensor, *, steps: int, rate: float) -> PartLosses:
        """Return the losses after some steps from the weights w, (p,), which are then undone."""
        with self._undone():
            self._weights.assign(w)
            self._train(self._masks(w != 0), steps=steps, rate=rate, key=TEST_KEY)
            began = time.perf_counter()
            losses = self.losses_now()
            self.check_seconds = time.perf_counter() - began
            return losses

    def run(
        self,
        kept: Tensor,
        *,
        steps: int,
        rate: float,
        key: int,
        progress: Progress | None = None,
    ) -> Recovered:
        """Train the network; restore it if the held-out loss does not fall.

        Args:
            kept: the support, (p,) bool.
            steps: the number of steps.
            rate: the highest relative rate.
            key: the number of the stage, which determines the order of the samples.
            progress: called after each step.
        """
        before, start, masks = self.losses_now(), Snapshot(self._model), self._masks(kept)
        try:
            self._train(masks, steps=steps, rate=rate, key=key, progress=progress)
            after = self.losses_now()
        except BaseException:
            start.restore()
            raise
        finite = math.isfinite(after.mean)
        helped = finite and not after.mean >= before.mean
        if not helped:
            start.restore()
            logger.info("recovery does not help: held-out loss %.4g, %.4g before", after.mean,
                        before.mean)  # fmt: skip
        task, kept_losses = self._training.task, after if helped else before
        return Recovered(before, kept_losses, helped, steps, task, finite)

    def _train(
        self, masks: Masks, *, steps: int, rate: float, key: int, progress: Progress | None = None
    ) -> None:
        began = time.perf_counter()
        loss = self._training.train(masks, steps=steps, rate=rate, key=key, progress=progress)
        self.seconds += time.perf_counter() - began
        logger.debug("%d steps with the relative rate %.2g: training loss %.4g", steps, rate, loss)

    def _masks(self, kept: Tensor) -> Masks:
        parts = self._weights.split(kept)
        return {weight.parameter: parts[weight.name] for weight in self._weights}

    @contextmanager
    def _undone(self) -> Iterator[None]:
        start = Snapshot(self._model)
        try:
            yield
        finally:
            start.restore()
