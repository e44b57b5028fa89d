"""Measure a pruned network on samples that chose nothing, and check whether it keeps its floor."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from chita.errors import ChitaError
from chita.files.finite import finite_or_none
from chita.pruning.floor import Floor
from chita.pruning.held_out import HeldOut
from chita.pruning.result import StageRow

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measurement:
    """A network on the samples it is measured on.

    Attributes:
        loss: the mean; None if there are no such samples.
        loss_error: its standard error; None also if there are too few samples to tell.
        accuracy: in percent, if the floor asks for it.
        accepted: whether the floor is kept.
    """

    loss: float | None = None
    loss_error: float | None = None
    accuracy: float | None = None
    accepted: bool = True


class Judge:
    """Measures the model, and checks it against the floor.

    Args:
        measured: samples that choose nothing, and the model, which is still dense.
        floor: what must be kept; None for nothing.

    Raises:
        ChitaError: min_accuracy is asked of a model that is no classifier.
    """

    def __init__(self, measured: HeldOut, floor: Floor | None) -> None:
        self._measured, self._floor = measured, floor
        if floor is None:
            return
        self._dense_accuracy = math.nan
        if floor.min_accuracy is not None:
            try:
                self._dense_accuracy = measured.accuracy_now()
            except ChitaError as error:
                raise ChitaError(f"min_accuracy cannot be computed: {error}") from error
        self._dense = measured.losses_now()

    def measure(self) -> Measurement:
        """Measure the model as it is."""
        if not self._measured.batches:
            return Measurement()
        losses = self._measured.losses_now()
        accuracy, accepted = None, True
        if self._floor is not None:
            increase = losses.less(self._dense)
            above = increase.mean + (finite_or_none(increase.standard_error) or 0.0)
            surely = None
            if self._floor.min_accuracy is not None:
                accuracy = self._measured.accuracy_now()
                surely = accuracy - accuracy_error(accuracy, self._measured.samples)
            accepted = self._floor.holds(above, surely)
        error = finite_or_none(losses.standard_error)
        return Measurement(losses.mean, error, accuracy, accepted)

    def holds(self) -> bool:
        """Return whether the model as it is keeps to the floor."""
        return self._floor is None or self.measure().accepted

    def sum_up(self, rows: Sequence[StageRow], pattern: str | None) -> None:
        """Warn where the floor left less than was asked for."""
        reached = max((row.sparsity for row in rows if row.accepted), default=None)
        if self._floor is None:
            return
        if reached is None:
            accuracy = self._dense_accuracy
            error = accuracy_error(accuracy, self._measured.samples)
            told = "" if math.isnan(accuracy) else f" and {accuracy:.2f} % accuracy ({error:.2f})"
            logger.warning(
                "no stage kept to %s by one standard error: the network stays dense, which has a "
                "loss of %.4g%s on the %d samples that this was measured on",
                self._floor,
                self._dense.mean,
                told,
                self._measured.samples,
            )
        elif pattern is not None and reached < max(row.sparsity for row in rows):
            logger.warning(
                "%s was reached at a sparsity of %.4f, on the way to %s: not every group is there",
                self._floor,
                reached,
                pattern,
            )


def accuracy_error(accuracy: float, samples: int) -> float:
    """Return the standard error of an accuracy in percent.

    One right and one wrong answer are added, so that it is not zero where all answers are right.
    """
    share = (accuracy / 100 * samples + 1) / (samples + 2)
    return 100 * math.sqrt(share * (1 - share) / samples)
