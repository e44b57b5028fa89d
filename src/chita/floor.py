"""The floor under a pruned network: how much worse than the dense one it may be."""

from __future__ import annotations

from dataclasses import dataclass

from chita.errors import ChitaError
from chita.held_out import HeldOut

CEILING = 0.99  # the sparsity to search up to, unless one is given


@dataclass(frozen=True)
class Floor:
    """What a stage must keep to be accepted, on held-out samples.

    Attributes:
        max_loss_increase: by how much the loss may exceed that of the dense network.
        min_accuracy: the least accuracy, in percent.
    """

    max_loss_increase: float | None = None
    min_accuracy: float | None = None

    def holds(self, loss: float, dense_loss: float, accuracy: float | None) -> bool:
        if self.max_loss_increase is not None and not loss - dense_loss <= self.max_loss_increase:
            return False
        return self.min_accuracy is None or (accuracy is not None and accuracy >= self.min_accuracy)


def sparsity_to_reach(given: float | str | None, floor: Floor) -> float | str:
    """The sparsity that was given; without one, where the search for the floor ends.

    Raises:
        ChitaError: there is neither.
    """
    if given is not None:
        return given
    if floor == Floor():
        raise ChitaError(
            "sparsity must be a number in [0, 1), got None; it may be left out where "
            "max_loss_increase or min_accuracy says how far to go"
        )
    return CEILING


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
        if floor.min_accuracy is not None:
            try:
                held_out.accuracy_now()
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
