"""The pace of a run with recovery: how long the rest takes, and fewer steps if the run is late."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from chita.pruning.budget import Budget, RecoveryPlan
from chita.solver.ranks import Ranks

logger = logging.getLogger(__name__)

LATE = 0.9  # the remaining steps are reduced if less than this share of them fits


@dataclass(frozen=True)
class Clock:
    """The state of a run at some time.

    Attributes:
        now: the seconds since the run began.
        stages: the finished stages.
        trained: the seconds of all training so far.
    """

    now: float
    stages: int
    trained: float

    def pace(self, later: Clock, steps: int) -> Pace:
        """Return the pace from here to a later state, with some training steps in between."""
        trained = later.trained - self.trained
        others = later.now - self.now - trained
        return Pace(trained / max(steps, 1), others / max(later.stages - self.stages, 1))


@dataclass(frozen=True)
class Pace:
    """How fast a run proceeds.

    Attributes:
        step: the seconds of training for each step, that of candidates included.
        stage: the other seconds of a stage.
    """

    step: float
    stage: float

    def seconds(self, steps: Sequence[int]) -> float:
        """Return the time of stages with these training steps."""
        return sum(steps) * self.step + len(steps) * self.stage


class RunPace:
    """Measures the pace of one call from its first stage on, and shortens its plan if it is late.

    A plan assumes the speed of a short test; other programs may slow the machine down.

    Args:
        budget: the budget of the run.
        ranks: the ranks, which measure different times, but must take the same steps.
    """

    def __init__(self, budget: Budget, ranks: Ranks) -> None:
        self._budget, self._ranks = budget, ranks
        self._start: tuple[Clock, RecoveryPlan] | None = None  # at the first stage of this call
        self._steps = 0  # training steps since then
        self._pace: Pace | None = None  # unknown before the second stage of this call

    def count(self, steps: int) -> None:
        """Count training steps."""
        self._steps += steps

    def seconds(self, steps: Sequence[int]) -> float | None:
        """Return the time of stages with these steps; None before the pace is known."""
        return None if self._pace is None else self._pace.seconds(steps)

    def shortened(self, plan: RecoveryPlan, clock: Clock) -> RecoveryPlan:
        """Return the plan with fewer steps if the run would otherwise exceed its budget.

        The first stages take longer than the others, so that later calls may return more steps
        again, up to those of the plan at the first stage.

        Args:
            plan: the plan so far.
            clock: the state of the run.
        """
        if self._start is None:
            self._start = clock, plan
            return plan
        begin, full = self._start
        self._pace = begin.pace(clock, self._steps)
        left = self._fitting(full, clock, self._pace)
        return replace(full, steps=plan.steps[: clock.stages] + left)

    def _fitting(self, full: RecoveryPlan, clock: Clock, pace: Pace) -> list[int]:
        """Return the steps of the remaining stages, fewer than in the full plan if it is late."""
        remaining = full.steps[clock.stages :]
        if sum(full.steps) <= self._budget.floor_steps:
            return remaining
        left, stages = sum(remaining), len(remaining) * pace.stage
        to_train = max(self._budget.planned_seconds - clock.now - stages, 0.0)
        share = self._ranks.from_first(lambda: to_train / max(pace.step * left, 1e-9))
        if share >= LATE:
            return remaining
        shorter = [max(1, int(share * each)) for each in remaining]
        logger.info("the run is late: %d of %d training steps are left", sum(shorter), left)
        return shorter

    def warn_of_solves(self, solves: Sequence[float], stages: int) -> None:
        """Warn after the stage in which the gradients and solves exceed the time of the budget.

        They are never interrupted, so that the run takes longer and trains little.

        Args:
            solves: the seconds of the gradients and solves of each finished stage.
            stages: the stages of the run, at most.
        """
        taken, limit = sum(solves), self._budget.seconds
        if taken - solves[-1] <= limit < taken:
            logger.warning(
                "the gradients and solves of %d of %d stages took %.3g s, more than the budget of "
                "%g s: to leave time for training, give a larger budget, fewer stages, or a "
                "cheaper method, such as method='auto' or 'magnitude'",
                len(solves),
                stages,
                taken,
                limit,
            )
