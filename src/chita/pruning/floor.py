"""The floor under a pruned network: how much worse than the dense one it may be."""

from __future__ import annotations

from dataclasses import dataclass

from chita.errors import ChitaError

CEILING = 0.99  # the sparsity to search up to, unless one is given


@dataclass(frozen=True)
class Floor:
    """What a stage must keep to be accepted, on samples that have chosen nothing.

    The loss and the accuracy must keep to it by one standard error: on few samples they may be
    better than they really are.

    Attributes:
        max_loss_increase: by how much the loss may exceed that of the dense network.
        min_accuracy: the least accuracy, in percent.
    """

    max_loss_increase: float | None = None
    min_accuracy: float | None = None

    def __str__(self) -> str:
        return " and ".join(f"{k}={v}" for k, v in vars(self).items() if v is not None)

    def holds(self, increase: float, accuracy: float | None) -> bool:
        """Return whether both bounds are kept.

        Args:
            increase: of the loss over that of the dense network, plus its standard error.
            accuracy: in percent, less its standard error; None if it was not computed.
        """
        if self.max_loss_increase is not None and not increase <= self.max_loss_increase:
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
