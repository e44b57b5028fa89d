"""What all ways to train a sparse network have in common: each is a guest in a training loop.

The loop is somebody else's: it runs the model, calls backward and steps the optimizer. A sparsifier
is told where the loop is, and may do three things: prune before an epoch, stand in for weights in
the forward pass, and put the weights right after a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from chita.model.weights import Weights


class Sparsifier(ABC):
    """A way to train a sparse network.

    Attributes:
        weights: the prunable weights of the model, p in all.
    """

    weights: Weights

    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups of its own that the optimizer must take in, such as thresholds."""
        return []

    def begin_epoch(self, epoch: int, batches: Iterable[Any]) -> None:  # noqa: B027
        """Before epoch 0, 1, ...; `batches` are training data, for those that calibrate on them."""

    def effective(self) -> dict[str, Tensor]:
        """The weights that the forward pass takes in the place of the model's, by name.

        They are made anew for each step, by differentiable operations on the model's parameters and
        those in `groups`, for `torch.func.functional_call`.
        """
        return {}

    def penalty(self) -> Tensor | None:
        """What is added to the loss of a step, if anything."""
        return None

    def after_step(self) -> None:  # noqa: B027
        """After each step of the optimizer, with the gradients of that step still in place."""

    @abstractmethod
    def finalize(self) -> None:
        """Write the sparse network into the model's own weights: what is pruned is exactly zero."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs to go on in the same way."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state of another one with the same arguments."""
