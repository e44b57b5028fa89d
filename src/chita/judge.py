"""Whether a pruned network keeps to its floor, on held-out samples."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from chita.errors import ChitaError
from chita.floor import Floor
from chita.held_out import HeldOut
from chita.result import StageRow

logger = logging.getLogger(__name__)


class Judge:
    """Says of a pruned model whether it keeps to the floor.

    Args:
        held_out: the samples, and the model, which is dense yet.
        floor: what must be kept; None for nothing.

    Raises:
        ChitaError: min_accuracy is asked of a model that is no classifier.
    """

    def __init__(self, held_out: HeldOut, floor: Floor | None) -> None:
        self._held_out, self._floor = held_out, floor
        if floor is None:
            return
        self._dense_accuracy = math.nan
        if floor.min_accuracy is not None:
            try:
                self._dense_accuracy = held_out.accuracy_now()
            except ChitaError as error:
                raise ChitaError(f"min_accuracy cannot be told: {error}") from error
        self._dense_loss = held_out.loss_now()

    def judge(self, loss: float | None) -> tuple[float | None, bool]:
        """The accuracy, if it is asked for, of the model as it is, and whether the floor holds.

        Args:
            loss: of the model as it is, on the held-out samples; None if there are none.
        """
        if self._floor is None or loss is None:
            return None, True
        accuracy = None
        if self._floor.min_accuracy is not None:
            accuracy = self._held_out.accuracy_now()
        return accuracy, self._floor.holds(loss, self._dense_loss, accuracy)

    def holds(self, loss: float) -> bool:
        """Whether the model as it is, which has this held-out loss, keeps to the floor."""
        return self.judge(loss)[1]

    def sum_up(self, rows: Sequence[StageRow], pattern: str | None) -> None:
        """Warn where the floor left less than was asked for."""
        reached = max((row.sparsity for row in rows if row.accepted), default=None)
        if self._floor is None:
            return
        if reached is None:
            accuracy = self._dense_accuracy
            told = "" if math.isnan(accuracy) else f" and an accuracy of {accuracy:.2f} %"
            logger.warning(
                "no stage kept to %s: the network stays dense, which has a held-out loss of %.4g%s",
                self._floor,
                self._dense_loss,
                told,
            )
        elif pattern is not None and reached < max(row.sparsity for row in rows):
            logger.warning(
                "%s was reached at a sparsity of %.4f, on the way to %s: not every group is there",
                self._floor,
                reached,
                pattern,
            )
