"""The interface of methods that train a sparse network, and the training plan that they get."""

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
    """The length of a training and the sparsity at its end.

    Attributes:
        sparsity: the share of the prunable weights that are zero at the end.
        epochs: the number of epochs of the training.
        steps_per_epoch: the optimizer steps in an epoch.
        schedule: when pruning steps happen. Methods that prune at every step do so from the first
            pruning step to the last.
        seed: the random seed.
    """

    sparsity: float
    epochs: int
    steps_per_epoch: int
    schedule: PruningSchedule
    seed: int

    @property
    def steps(self) -> int:
        """The optimizer steps of the whole training."""
        return self.epochs * self.steps_per_epoch

    @property
    def first_step(self) -> int:
        """The number of optimizer steps before pruning begins."""
        return self.schedule.epochs[0] * self.steps_per_epoch

    @property
    def last_step(self) -> int:
        """The number of optimizer steps after which the target is reached, at least 1."""
        return max(self.schedule.epochs[-1] * self.steps_per_epoch, 1)

    def sparsity_at(self, step: int) -> float:
        """Return the sparsity at a step on Zhu and Gupta's cubic from 0 to the target.

        The cubic rises fast at first and slowly near the target.
        """
        begin, end = self.first_step, self.last_step
        if step >= end:
            return self.sparsity
        if step <= begin:
            return 0.0
        return self.sparsity * MESHES["polynomial"](step - begin, end - begin, 0.0)


class Sparsifier(ABC):
    """A method that trains a sparse network.

    Attributes:
        weights: the prunable weights of the model, p in total.
    """

    weights: Weights

    def groups(self) -> list[dict[str, Any]]:
        """Return additional parameter groups for the optimizer, such as thresholds."""
        return []

    def begin_epoch(self, epoch: int, batches: Iterable[Any]) -> None:  # noqa: B027
        """Prepare epoch 0, 1, ...; `batches` are training data for methods that calibrate."""

    def effective(self) -> dict[str, Tensor]:
        """Return the weights that replace the model's in the forward pass, by name.

        They are computed at each step by differentiable operations on the model's parameters and
        those in `groups`, and are passed to `torch.func.functional_call`.
        """
        return {}

    def penalty(self) -> Tensor | None:
        """Return a term to add to the loss of a step, or None."""
        return None

    def after_step(self) -> None:  # noqa: B027
        """Update after an optimizer step; the gradients of that step are still available."""

    @abstractmethod
    def finalize(self) -> None:
        """Write the sparse weights into the model; pruned weights become exactly zero."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything that `load_state_dict` needs to continue."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a sparsifier with the same arguments."""
