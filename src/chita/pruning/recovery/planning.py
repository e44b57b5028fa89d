"""The plan of a run with recovery: sparsities and training steps that fit into its budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import cache

from torch import Tensor

from chita.errors import ChitaError
from chita.pruning.budget import Budget, Costs, RecoveryPlan, divide_steps, parse_budget
from chita.pruning.config import SCHEDULE, PruneConfig
from chita.pruning.held_out import LossesOf
from chita.pruning.recovery.guarded_training import DIVERGED, GuardedTraining
from chita.pruning.recovery.pool import LEAST_BATCH, SamplePool, batch_size
from chita.pruning.recovery.range_test import LEAST_TEST_STEPS, RATES, SLOWEST, steps_of_test
from chita.pruning.schedule import BISECTIONS, highest_sparsity, sparsities
from chita.solver.ranks import Ranks

logger = logging.getLogger(__name__)

# Pruning by size to the target raises the loss by some amount. Pruning to the sparsity of the first
# stage, and to that of the range test, raises it by these shares of that amount. The range test
# needs a network that is neither almost intact nor destroyed: their losses depend little on the
# rate.
FIRST_COST, TESTED_COST = 0.03, 0.3
FORWARD = 3.0  # a forward and backward pass takes about as long as this many forward passes
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


class TrainingBudget:
    """What a budget allows to a training: the samples of a step, the test of rates, the steps.

    The ranks measure different times, and follow rank 0.

    Args:
        budget: the budget.
        pool: the samples that are trained on.
        ranks: the ranks.
    """

    def __init__(self, budget: Budget, pool: SamplePool, ranks: Ranks) -> None:
        self._budget, self._pool, self._ranks = budget, pool, ranks

    def find_rate(
        self,
        training: GuardedTraining,
        w: Tensor,
        check: Callable[[], None],
        *,
        others: Sequence[GuardedTraining] = (),
        tested: Callable[[], None] | None = None,
        remedy: str = "",
    ) -> float:
        """Return the rate of the range test, after steps are made as small as the time requires.

        Args:
            training: the training whose rate is searched for.
            w: the weights to train in the test, (p,).
            check: raises an error that names a sample whose loss is not finite, if there is one.
            others: other trainings on the same samples.
            tested: called after each test of a rate.
            remedy: another remedy for the error, besides other data.

        Raises:
            ChitaError: no rate gives a finite loss.
        """
        seconds, measured = training.time_step(), self._pool.batch
        batch = self._agreed(self._budget.batch(measured, seconds, LEAST_BATCH))
        if batch != measured:
            for each in (training, *others):
                each.use_batch(batch)
        useful = self._budget.useful_steps(self._pool.samples, batch)
        steps = steps_of_test(useful, self._budget.seconds, seconds * batch / measured)
        rate = training.find_rate(w, steps=self._agreed(steps), tested=tested)
        if rate is None:
            check()
            raise ChitaError(
                f"recovery fails, even with a relative rate of {SLOWEST:g}: {DIVERGED}{remedy}"
            )
        return rate

    def steps(self, costs: Costs, began: float) -> int:
        """Return the training steps that the budget allows.

        Args:
            costs: the measured costs.
            began: when the run began, by `time.perf_counter`.
        """
        elapsed = time.perf_counter() - began
        return self._agreed(
            self._budget.steps(self._pool.samples, self._pool.batch, costs, elapsed)
        )

    def steps_to_train(
        self, costs: Costs, began: float, *, least: int = 0, remedy: str = ""
    ) -> int:
        """Return the training steps that the budget allows, at least one.

        Args:
            costs: the measured costs.
            began: when the run began, by `time.perf_counter`.
            least: the least number of training steps, whatever they take.
            remedy: another remedy for the error, besides a larger budget.

        Raises:
            ChitaError: the time does not suffice for one step.
        """
        steps = max(self.steps(costs, began), least)
        if steps < 1:
            elapsed = time.perf_counter() - began
            raise ChitaError(
                f"budget={self._budget.seconds:g} is too small: {_seconds(elapsed)} have passed "
                f"before the training, a step takes {_seconds(costs.step)}, and the rest of a run "
                f"with one step {_seconds(costs.seconds(1))}; give at least "
                f"budget={_number(2 * elapsed + costs.seconds(10))}, or 'N steps'{remedy}"
            )
        return steps

    def _agreed(self, count: int) -> int:
        return self._ranks.from_first(lambda: count)


class RecoveryPlanner:
    """Plans the stages of one run with recovery.

    Args:
        config: the options of the run.
        pool: the samples that are trained on.
        losses: computes the losses on some held-out samples.
        ranks: the ranks, which follow the same plan.

    Attributes:
        budget: what the budget allows to a training.
        first: the sparsity of the first stage, which costs almost nothing.
        tested: the sparsity of the range test.
    """

    def __init__(
        self, config: PruneConfig, pool: SamplePool, losses: LossesOf, ranks: Ranks
    ) -> None:
        self._config, self._pool, self._losses, self._ranks = config, pool, losses, ranks
        self.budget = TrainingBudget(parse_budget("budget", config.budget), pool, ranks)
        self.first = self.tested = float(config.sparsity)

    def find_sparsities(self, pruned_to: Callable[[float], Tensor]) -> None:
        """Find the sparsities of the first stage and of the range test.

        Args:
            pruned_to: sparsity -> the weights, pruned by their size without an update, (p,).
        """

        @cache
        def loss(sparsity: float) -> float:
            return self._losses(pruned_to(sparsity)).mean

        target = float(self._config.sparsity)
        lowest, dense, most = min(self._config.start, target), loss(0.0), loss(target)
        cost = most - dense if most > dense else 0.0
        self.first, self.tested = (
            highest_sparsity(loss, dense + share * cost, lowest, target)
            for share in (FIRST_COST, TESTED_COST)
        )

    def plan(self, rate: float, costs: Costs, began: float, *, least: int = 0) -> RecoveryPlan:
        """Divide the budget among the stages.

        Args:
            rate: the highest relative rate.
            costs: the measured costs.
            began: when the run began, by `time.perf_counter`.
            least: the least number of training steps, whatever they take.

        Raises:
            ChitaError: the budget does not suffice for one step.
        """
        config = self._config
        steps = self.budget.steps_to_train(
            costs, began, least=least, remedy=", or give recover=False"
        )
        stages, searched = costs.stages_for(steps), 0 if config.floor is None else FLOOR_STAGES
        # Any stage of a search for a floor may be the last one.
        even = [max(steps // (stages + searched), 1)] * (stages + searched)
        target = float(config.sparsity)
        rising = sparsities(
            config.schedule or SCHEDULE, target, stages=stages, start=self.first, hold=config.hold
        )
        plan = RecoveryPlan(
            rate,
            rising + [target] * searched,
            even if searched else divide_steps(steps, stages),
            costs.probe_steps(steps),
            costs.tries_tasks(steps),
            self._pool.batch,
            1 - self.tested,
        )
        logger.info("%s, %d steps; %s", plan, steps, costs)
        return self._ranks.from_first(lambda: plan)  # ranks may measure other times and losses

    def expected(self, costs: Costs, began: float) -> float:
        """Return about how long the run takes from now on, in seconds, before it is planned."""
        return costs.seconds(max(self.budget.steps(costs, began), 1))


def _seconds(value: float) -> str:
    return f"{_number(value)} s"


def _number(value: float) -> str:
    """Write a number with two digits, or all digits before the point."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"
