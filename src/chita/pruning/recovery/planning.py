"""The plan of a run with recovery: sparsities and training steps that fit into its budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from torch import Tensor

from chita.errors import ChitaError
from chita.pruning.budget import Budget, Costs, Plan, divide_steps, parse_budget
from chita.pruning.config import SCHEDULE, PruneConfig
from chita.pruning.held_out import LossesOf
from chita.pruning.recovery.pool import LEAST_BATCH, SamplePool, batch_size
from chita.pruning.recovery.range_test import LEAST_TEST_STEPS, RATES, steps_of_test
from chita.pruning.schedule import sparsities
from chita.solver.ranks import Ranks

logger = logging.getLogger(__name__)

# Shares of the cost of the target, for the first sparsity, which costs almost nothing, and for that
# of the range test: a network that is almost intact, or destroyed, learns alike at any rate.
FREE, TESTED = 0.03, 0.3
BISECTIONS = 5
FORWARD = 3.0  # a forward and backward pass takes about as long as this many forward passes
BEHIND = 0.9  # the remaining steps are reduced if less than this share of them fits
FLOOR_STAGES = 6  # additional stages in which the search for a floor bisects


def first_estimate(
    budget: Budget,
    sample_seconds: float,
    *,
    samples: int,
    held_out: int,
    at_once: int,
    entrants: int,
    stage_seconds: float = 0.0,
) -> float:
    """Return about how long a run takes, from the cost of one sample alone.

    Args:
        budget: the budget.
        sample_seconds: the seconds of a forward and backward pass for one sample.
        samples: the samples to train on.
        held_out: the samples to choose by.
        at_once: the largest number of samples in a forward pass.
        entrants: the candidates that are compared after some training.
        stage_seconds: the seconds of the gradients of a stage.
    """
    forward = sample_seconds / FORWARD
    full = min(batch_size(samples, at_once), max(samples, 1))
    batch = budget.batch(full, full * sample_seconds, min(LEAST_BATCH, full))
    costs = Costs(batch * sample_seconds, held_out * forward, entrants, stage=stage_seconds)
    tests = RATES * (LEAST_TEST_STEPS * costs.step + costs.check)
    losses = 2 * (1 + BISECTIONS) * costs.check
    before = samples * forward + losses + tests  # the outputs of the dense network come first
    return before + costs.seconds(max(budget.steps(samples, batch, costs, before), 1))


@dataclass(frozen=True)
class Pace:
    """How fast a run proceeds.

    Attributes:
        step: the seconds of training for each step, that of candidates included.
        stage: the other seconds of a stage.
    """

    step: float
    stage: float


@dataclass(frozen=True)
class Clock:
    """The state of a run at some time.

    Attributes:
        now: the time, by `time.perf_counter`.
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


class Planner:
    """Plans the stages of one run.

    Args:
        config: the options of the run.
        pool: the samples that are trained on.
        losses: computes the losses on some held-out samples.
        ranks: the ranks, which follow the same plan.

    Attributes:
        first: the sparsity of the first stage, which costs almost nothing.
        tested: the sparsity of the range test.
    """

    def __init__(
        self, config: PruneConfig, pool: SamplePool, losses: LossesOf, ranks: Ranks
    ) -> None:
        self._config, self._pool, self._losses, self._ranks = config, pool, losses, ranks
        self._budget = parse_budget("budget", config.budget)
        self.first = self.tested = float(config.sparsity)

    def find_sparsities(self, pruned_to: Callable[[float], Tensor]) -> None:
        """Find the sparsities of the first stage and of the range test.

        Args:
            pruned_to: sparsity -> the weights, pruned by their size without an update, (p,).
        """

        @cache
        def loss(sparsity: float) -> float:
            return self._losses(pruned_to(sparsity)).mean

        dense, most = loss(0.0), loss(float(self._config.sparsity))

        def highest(share: float) -> float:
            """Bisect for the sparsity whose cost is at most a share of that of the target."""
            low, high = min(self._config.start, self._config.sparsity), self._config.sparsity
            limit = dense + (share * (most - dense) if most > dense else 0.0)
            for _ in range(BISECTIONS):
                between = (low + high) / 2
                if loss(between) <= limit:
                    low = between
                else:
                    high = between
            return float(low)

        self.first, self.tested = highest(FREE), highest(TESTED)

    def plan(self, rate: float, costs: Costs, began: float, *, least: int = 0) -> Plan:
        """Divide the budget among the stages.

        Args:
            rate: the highest relative rate.
            costs: the measured costs.
            began: when the run began, by `time.perf_counter`.
            least: the least number of training steps, whatever they take.

        Raises:
            ChitaError: the budget does not suffice for one step.
        """
        config, steps = self._config, max(self._affordable(costs, began), least)
        if steps < 1:
            elapsed = time.perf_counter() - began
            raise ChitaError(
                f"budget={config.budget!r} is too small for one stage: {elapsed:.1f} s have passed "
                f"before it, and a training step takes {costs.step:.2g} s; give at least "
                f"{2 * elapsed + costs.seconds(10):.1f} seconds, or recover=False"
            )
        stages, searched = costs.stages_for(steps), 0 if config.floor is None else FLOOR_STAGES
        # Any stage of a search for a floor may be the last one.
        even = [max(steps // (stages + searched), 1)] * (stages + searched)
        target = float(config.sparsity)
        rising = sparsities(
            config.schedule or SCHEDULE, target, stages=stages, start=self.first, hold=config.hold
        )
        plan = Plan(
            rate,
            rising + [target] * searched,
            even if searched else divide_steps(steps, stages),
            costs.probe_steps(steps),
            costs.tries_tasks(steps),
            self._pool.batch,
        )
        logger.info("%s, %d steps; %s", plan, steps, costs)
        return self._ranks.from_first(lambda: plan)  # ranks may measure other times and losses

    @property
    def batch_now(self) -> int:
        """The samples of a step."""
        return self._pool.batch

    def batch(self, step_seconds: float) -> int:
        """Return the samples of a step, given the seconds of a step of the pool's batch."""
        batch = self._budget.batch(self._pool.batch, step_seconds, LEAST_BATCH)
        return self._ranks.from_first(lambda: batch)

    def test_steps(self, step_seconds: float) -> int:
        """Return for how many steps to test each rate, given the seconds of a step."""
        useful = self._budget.useful_steps(self._pool.samples, self._pool.batch)
        steps = steps_of_test(useful, self._budget.seconds, step_seconds)
        return self._ranks.from_first(lambda: steps)

    def expected(self, costs: Costs, began: float) -> float:
        """Return about how long the run takes from now on, in seconds, before it is planned."""
        return costs.seconds(max(self._affordable(costs, began), 1))

    def _affordable(self, costs: Costs, began: float) -> int:
        """Return the training steps that the budget allows, the same on all ranks."""
        elapsed = time.perf_counter() - began
        steps = self._budget.steps(self._pool.samples, self._pool.batch, costs, elapsed)
        return self._ranks.from_first(lambda: steps)

    def shortened(self, plan: Plan, done: int, pace: Pace, elapsed: float) -> Plan:
        """Return the plan with fewer steps if the run would otherwise exceed its budget.

        A plan assumes the speed of a short test; other programs may slow the machine down. The
        first stages take longer than the others, so that later calls may return more steps again.

        Args:
            plan: the plan without reductions.
            done: the number of finished stages.
            pace: the pace of the run.
            elapsed: the seconds since the run began.
        """
        if sum(plan.steps) <= self._budget.floor_steps:
            return plan
        remaining = plan.steps[done:]
        left = sum(remaining)
        to_train = self._budget.planned_seconds - elapsed - len(remaining) * pace.stage
        # The ranks measure different times, but must take the same steps.
        share = self._ranks.from_first(lambda: max(to_train, 0.0) / max(pace.step * left, 1e-9))
        if share >= BEHIND:
            return plan
        shorter = [max(1, int(share * each)) for each in remaining]
        logger.info("the run is late: %d of %d training steps are left", sum(shorter), left)
        return replace(plan, steps=plan.steps[:done] + shorter)
