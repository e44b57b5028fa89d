"""What a sparsifier may know of the training that it is a guest in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
