"""What every method that trains a sparse network implements, and the training plan it sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from chita.model.weights import Weights
from chita.pruning.schedule import MESHES

if TYPE_CHECKING:
    from chita.gradual.schedules import PruningSchedule


@dataclass(frozen=True)
class TrainingPlan:
    """How long it takes, and how sparse the network must be in the end.

    Attributes:
        sparsity: the share of the prunable weights that are zero in the end.
        epochs: of the whole training.
        steps_per_epoch: steps of the optimizer.
        schedule: when the pruning steps of gradual pruning are due. Methods that prune, or drive
            their sparsity, at every step do so from the first of them to the last.
        seed: of what is drawn.
    """

    sparsity: float
    epochs: int
    steps_per_epoch: int
    schedule: PruningSchedule
    seed: int

    @property
    def steps(self) -> int:
        """Of the whole training."""
        return self.epochs * self.steps_per_epoch

    @property
    def first_step(self) -> int:
        """After so many steps pruning begins."""
        return self.schedule.epochs[0] * self.steps_per_epoch

    @property
    def last_step(self) -> int:
        """After so many steps the target is reached, at least one."""
        return max(self.schedule.epochs[-1] * self.steps_per_epoch, 1)

    def sparsity_at(self, step: int) -> float:
        """Zhu and Gupta's cubic from 0 to the target, for methods that move at every step.

        It rises fast while weights are plenty and slowly near the target.
        """
        begin, end = self.first_step, self.last_step
        if step >= end:
            return self.sparsity
        if step <= begin:
            return 0.0
        return self.sparsity * MESHES["polynomial"](step - begin, end - begin, 0.0)


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
