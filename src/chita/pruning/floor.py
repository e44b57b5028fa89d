"""The floor of a run: how much worse than the dense network the pruned one may be."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from chita.errors import ChitaError
from chita.pruning.held_out import HeldOut, Measurement

logger = logging.getLogger(__name__)

CEILING = 0.99  # the sparsity to search up to, unless one is given


@dataclass(frozen=True)
class Floor:
    """The bounds within which a stage is accepted.

    They apply to samples that are not used for any other choice, and must hold by one standard
    error: on few samples a loss or an accuracy may look better than it is.

    Attributes:
        max_loss_increase: the largest increase of the loss over that of the dense network.
        min_accuracy: the least accuracy, in percent.
    """

    max_loss_increase: float | None = None
    min_accuracy: float | None = None

    def __str__(self) -> str:
        return " and ".join(f"{k}={v}" for k, v in vars(self).items() if v is not None)

    def holds(self, increase: float, accuracy: float | None) -> bool:
        """Return whether both bounds hold.

        Args:
            increase: the increase of the loss, plus its standard error.
            accuracy: the accuracy in percent, minus its standard error; None if not computed.
        """
        if self.max_loss_increase is not None and not increase <= self.max_loss_increase:
            return False
        return self.min_accuracy is None or (accuracy is not None and accuracy >= self.min_accuracy)


class FloorCheck:
    """Measures a model and checks it against the floor.

    Args:
        measured: samples that are not used for any other choice, and the model, which is still
            dense.
        floor: the bounds.

    Raises:
        ChitaError: the floor has a min_accuracy, and the model is not a classifier.
    """

    def __init__(self, measured: HeldOut, floor: Floor) -> None:
        self._measured, self._floor = measured, floor
        self._dense_accuracy = math.nan
        if floor.min_accuracy is not None:
            try:
                self._dense_accuracy = measured.accuracy_now()
            except ChitaError as error:
                raise ChitaError(f"min_accuracy cannot be computed: {error}") from error
        self._dense = measured.losses_now()

    def measure(self) -> Measurement:
        """Measure the model with its current weights, and check the floor."""
        losses = self._measured.losses_now()
        increase = losses.less(self._dense)
        above = increase.mean + (_finite(increase.standard_error) or 0.0)
        accuracy = lowest = None
        if self._floor.min_accuracy is not None:
            accuracy = self._measured.accuracy_now()
            lowest = accuracy - accuracy_error(accuracy, self._measured.samples)
        accepted = self._floor.holds(above, lowest)
        return Measurement(losses.mean, _finite(losses.standard_error), accuracy, accepted)

    def warn(self, reached: float | None, highest: float, pattern: str | None) -> None:
        """Warn if the floor ended the run before its target.

        Args:
            reached: the highest sparsity of an accepted stage; None if there is none.
            highest: the highest sparsity that was tried.
            pattern: the pattern of the run, if it has one.
        """
        if reached is None:
            accuracy, samples = self._dense_accuracy, self._measured.samples
            error = accuracy_error(accuracy, samples)
            known = "" if math.isnan(accuracy) else f", its accuracy {accuracy:.2f} % ({error:.2f})"
            logger.warning(
                "no stage satisfies %s by one standard error: the network stays unchanged; its "
                "loss is %.4g%s on the %d samples of this check",
                self._floor,
                self._dense.mean,
                known,
                samples,
            )
        elif pattern is not None and reached < highest:
            logger.warning(
                "%s was reached at a sparsity of %.4f, before %s: not every group is complete",
                self._floor,
                reached,
                pattern,
            )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def accuracy_error(accuracy: float, samples: int) -> float:
    """Return the standard error of an accuracy in percent.

    One right and one wrong answer are added, so that the error is not zero if all answers are
    right.
    """
    share = (accuracy / 100 * samples + 1) / (samples + 2)
    return 100 * math.sqrt(share * (1 - share) / samples)


def highest_sparsity(floor: Floor) -> float:
    """Return the sparsity up to which a run searches if only a floor is given.

    Raises:
        ChitaError: the floor has no bound.
    """
    if floor == Floor():
        raise ChitaError(
            "sparsity must be a number in [0, 1), got None; it may be omitted only with "
            "max_loss_increase or min_accuracy"
        )
    return CEILING
