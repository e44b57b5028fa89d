"""Recovery of a run of `chita.prune`: its samples, its plan, and the training of each stage."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.losses import Loss
from chita.model.weights import Weights
from chita.pruning.budget import SPARE, Costs, Plan, divide_steps, parse_budget
from chita.pruning.calibration import Calibration
from chita.pruning.config import SCHEDULE, PruneConfig
from chita.pruning.held_out import HeldOut, LossesOf, PartLosses
from chita.pruning.options import DISTILL_MSE
from chita.pruning.recovery.objective import lesson_for, treats_as_features
from chita.pruning.recovery.pool import first_batches
from chita.pruning.recovery.rate import SLOWEST
from chita.pruning.recovery.recovery import Recovered, Recovery
from chita.pruning.recovery.training import Progress, RecoveryTraining
from chita.pruning.schedule import sparsities
from chita.solver.ranks import Ranks

logger = logging.getLogger(__name__)

FREE = 0.03  # the part of the increase of the held-out loss that counts as almost nothing
BISECTIONS = 5
SLOWER = 3.0  # divides the rate after a training that did not help
FASTER = 1.5  # multiplies it after one that did, up to the rate of the plan
BEHIND = 0.9  # the remaining steps are reduced if less than this share of them fits
AGAIN = 0.3  # the share of its steps with which the last training is repeated
FLOOR_STAGES = 6  # additional stages in which the search for a floor bisects


class StageRecovery:
    """The training of one run, which follows a plan.

    Args:
        model: the model before pruning, which is the teacher.
        weights: its prunable weights.
        data: the samples of the run.
        loss: the user's loss function, if there is one.
        config: the options of the run.
        held_out: samples that guard the training.
        ranks: the ranks that share each batch.

    Attributes:
        rate: the rate of the next training.
        contests: the sparsities at which candidates are compared before the first stage.
        plan: the plan; None before `make_plan` or `load_state`.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Weights,
        data: Calibration,
        loss: Loss | None,
        config: PruneConfig,
        *,
        held_out: HeldOut,
        ranks: Ranks,
    ) -> None:
        first = data.stream.sample
        assert first is not None  # calibration has read samples
        squares = config.loss == DISTILL_MSE or treats_as_features(first, loss)
        most = parse_budget("budget", config.budget).samples
        lesson = lesson_for(
            model,
            lambda: first_batches(data.stream.one_pass(), most),
            first,
            data.loss,
            squares=squares,
            at_once=data.at_once,
            place=weights.device,
        )
        self._config, self._pool, self._ranks = config, lesson.pool, ranks
        pruned = [weight.parameter for weight in weights]
        training = RecoveryTraining(model, pruned, lesson, ranks=ranks, seed=config.seed)
        self._recovery = Recovery(model, weights, training, held_out.losses_now)
        self._losses = held_out.losses
        self.rate = SLOWEST
        self.contests: list[float] = []
        self._started: tuple[float, int] | None = None  # when, and after how many stages
        self.plan: Plan | None = None

    @property
    def planned(self) -> Plan:
        """The plan, which exists from `make_plan` or `load_state` on."""
        assert self.plan is not None
        return self.plan

    def make_plan(
        self, pruned_to: Callable[[float], Tensor], *, entrants: int, began: float
    ) -> None:
        """Find the first sparsity and the rate, and divide the budget among the stages.

        Args:
            pruned_to: sparsity -> the weights, pruned by their size without an update, (p,).
            entrants: the candidates that are compared after some training.
            began: when the run began, by `time.perf_counter`.

        Raises:
            ChitaError: the budget does not suffice for one step, or no rate gives a finite loss.
        """
        config = self._config
        start = self._first_sparsity(pruned_to)
        middle = sparsities(
            config.schedule or SCHEDULE, float(config.sparsity), stages=3, start=start, hold=0.0
        )[1]
        self.contests = [middle, float(config.sparsity)]
        rate = self._recovery.find_rate(pruned_to(middle))
        if rate is None:
            raise ChitaError(
                f"recovery fails: training with a relative rate of {SLOWEST:g} gives a held-out "
                "loss that is not finite; check the data, or give recover=False"
            )
        costs = Costs(
            self._recovery.step_seconds, self._recovery.check_seconds, entrants, config.stages
        )
        steps = self._steps(costs, began)
        stages, searched = costs.stages_for(steps), 0 if config.floor is None else FLOOR_STAGES
        # Any stage of a search for a floor may be the last one.
        even = [max(steps // (stages + searched), 1)] * (stages + searched)
        rising = sparsities(
            config.schedule or SCHEDULE,
            float(config.sparsity),
            stages=stages,
            start=start,
            hold=config.hold,
        )
        self.rate = rate
        self.plan = Plan(
            rate,
            rising + [float(config.sparsity)] * searched,
            even if searched else divide_steps(steps, stages),
            costs.probe_steps(steps),
        )
        logger.info("%s, %d steps of %.3g s", self.plan, steps, costs.step)

    def _steps(self, costs: Costs, began: float) -> int:
        """Return the training steps that the budget allows, the same on all ranks."""
        budget = parse_budget("budget", self._config.budget)
        useful = budget.useful_steps(self._pool.samples, self._pool.batch)
        if math.isinf(budget.seconds):
            return useful
        elapsed = time.perf_counter() - began
        affordable = costs.affordable_steps(SPARE * budget.seconds - elapsed)
        steps = self._ranks.from_first(lambda: min(useful, affordable))
        if steps < 1:
            raise ChitaError(
                f"budget={self._config.budget!r} is too small for one stage: reading the data and "
                f"the range test took {elapsed:.1f} s, and a training step takes {costs.step:.2g} "
                f"s; give at least {2 * elapsed + costs.seconds(10):.1f} seconds, or recover=False"
            )
        return steps

    def _first_sparsity(self, pruned_to: Callable[[float], Tensor]) -> float:
        """Return the highest sparsity that costs almost nothing, between `start` and the target.

        The cost is the increase of the held-out loss, relative to that at the target.
        """
        lowest, highest = min(self._config.start, self._config.sparsity), self._config.sparsity
        dense = self._losses(pruned_to(0.0)).mean
        most = self._losses(pruned_to(highest)).mean
        limit = dense + (FREE * (most - dense) if most > dense else 0.0)
        for _ in range(BISECTIONS):
            between = (lowest + highest) / 2
            if self._losses(pruned_to(between)).mean <= limit:
                lowest = between
            else:
                highest = between
        return float(lowest)

    def worth(self) -> LossesOf:
        """Return the losses after a few training steps from some weights, (p,)."""
        plan = self.planned

        def losses(w: Tensor) -> PartLosses:
            return self._recovery.worth(w, steps=plan.probe, rate=self.rate)

        return losses

    def run(self, kept: Tensor, stage: int, progress: Progress | None = None) -> Recovered:
        """Train the network after a stage; a training that does not help lowers the rate.

        The last training is then repeated, since no other one follows. The repetition is shorter,
        because the budget does not provide for it.

        Args:
            kept: the support, (p,) bool.
            stage: the number of the stage, from 1.
            progress: called after each step.
        """
        steps, last = self.steps(stage), stage >= len(self.planned.steps)
        found = self._recovery.run(kept, steps=steps, rate=self.rate, key=stage, progress=progress)
        if last and not found.kept:
            self.rate /= SLOWER
            shorter = max(1, int(AGAIN * steps))
            again = self._recovery.run(kept, steps=shorter, rate=self.rate, key=stage)
            found = replace(again, steps=steps + shorter)
        self.rate = min(self.rate * FASTER, self.planned.rate) if found.kept else self.rate / SLOWER
        return found

    def keep_pace(self, stage: int, began: float) -> None:
        """Shorten the remaining stages if the run would otherwise exceed the time of its budget.

        The plan assumes the speed of the range test; other programs may slow the machine down.

        Args:
            stage: the number of finished stages.
            began: when the run began, by `time.perf_counter`.
        """
        now, steps = time.perf_counter(), self.planned.steps
        if self._started is None:
            self._started = (now, stage)
            return
        start, first = self._started
        left, pace = sum(steps[stage:]), (now - start) / max(sum(steps[first:stage]), 1)
        time_left = SPARE * parse_budget("budget", self._config.budget).seconds - (now - began)
        # The ranks measure different times, but must take the same steps.
        share = self._ranks.from_first(lambda: max(time_left, 0.0) / max(pace * left, 1e-9))
        if share < BEHIND:
            shorter = [max(1, int(share * each)) for each in steps[stage:]]
            self.plan = replace(self.planned, steps=steps[:stage] + shorter)
            logger.info("the run is late: %d of %d training steps are left", sum(shorter), left)

    def steps(self, stage: int) -> int:
        """Return the training steps of a stage, from 1."""
        steps = self.planned.steps
        return steps[min(stage, len(steps)) - 1]

    @property
    def seconds(self) -> float:
        """The time of all training so far, that of candidates and tests included."""
        return self._recovery.seconds

    def state(self) -> dict[str, Any]:
        """Return the plan, ready for JSON."""
        return {"plan": asdict(self.planned), "rate": self.rate}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue with a plan that `state` returned."""
        self.plan, self.rate = Plan(**state["plan"]), state["rate"]
