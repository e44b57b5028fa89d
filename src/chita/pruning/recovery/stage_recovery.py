"""Recovery of a run of `chita.prune`: its samples, its plan, and the training of each stage."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from torch import Tensor, nn

from chita.model.losses import Loss
from chita.model.named_losses import DISTILL_MSE
from chita.model.samples.batch import first_samples
from chita.model.weights import Weights
from chita.pruning.budget import Costs, RecoveryPlan, parse_budget
from chita.pruning.calibration import Calibration
from chita.pruning.config import PruneConfig
from chita.pruning.held_out import HeldOut, LossesOf, PartLosses
from chita.pruning.recovery.broken_samples import check_samples
from chita.pruning.recovery.guarded_training import GuardedTraining, Recovered
from chita.pruning.recovery.objective import tasks_for, treats_as_features
from chita.pruning.recovery.pace import Clock, RunPace
from chita.pruning.recovery.planning import RecoveryPlanner
from chita.pruning.recovery.pool import trained_at_once
from chita.pruning.recovery.range_test import SLOWEST, rate_factor
from chita.pruning.recovery.snapshot import Snapshot
from chita.pruning.recovery.training import Progress, RecoveryTraining
from chita.solver.ranks import Ranks

logger = logging.getLogger(__name__)

SLOWER = 3.0  # divides the rate after a training that did not help
FASTER = 1.5  # multiplies it after one that did, up to the rate of the plan
AGAIN = 0.3  # the share of its steps with which the last training is repeated


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
        samples: the number of samples that are trained on.
        task: the name of the task that is trained on.
        rate: the rate of the next training; a sparser network than the tested one has a higher one.
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
        budget = parse_budget("budget", config.budget)
        tasks = tasks_for(
            model,
            lambda: first_samples(data.stream.one_pass(), budget.samples),
            first,
            data.loss,
            squares=squares,
            labelled=not config.distills,
            at_once=trained_at_once(data.at_once, first),
            place=weights.device,
            ranks=ranks,
        )
        self._model, self._config = model, config
        pruned = [weight.parameter for weight in weights]
        self._by_task = {
            task.name: GuardedTraining(
                model,
                weights,
                RecoveryTraining(model, pruned, task, ranks=ranks, seed=config.seed),
                held_out.losses_now,
            )
            for task in tasks
        }
        self._data = data
        self.samples = tasks[0].pool.samples
        self._planner = RecoveryPlanner(config, tasks[0].pool, held_out.screening_losses, ranks)
        self.task = tasks[0].name
        self.rate = SLOWEST
        self._costs: Costs | None = None  # unknown in a run that was resumed
        self._pace = RunPace(budget, ranks)
        self.plan: RecoveryPlan | None = None

    @property
    def _recovery(self) -> GuardedTraining:
        return self._by_task[self.task]

    @property
    def planned(self) -> RecoveryPlan:
        """The plan, which exists from `make_plan` or `load_state` on."""
        assert self.plan is not None
        return self.plan

    def make_plan(
        self,
        pruned_to: Callable[[float], Tensor],
        *,
        entrants: int,
        began: float,
        expect: Callable[[float], None],
    ) -> None:
        """Find the first sparsity and the rate, and divide the budget among the stages.

        Args:
            pruned_to: sparsity -> the weights, pruned by their size without an update, (p,).
            entrants: the candidates that are compared after some training.
            began: when the run began, by `time.perf_counter`.
            expect: called with an estimate of the remaining time after each test of a rate.

        Raises:
            ChitaError: the budget does not suffice for one step, or no rate gives a finite loss.
        """
        self._planner.find_sparsities(pruned_to)

        def tested() -> None:
            expect(self._planner.expected(self._measured_costs(entrants), began))

        self.rate = self._planner.budget.find_rate(
            self._recovery,
            pruned_to(self._planner.tested),
            self._check_samples,
            others=[each for each in self._by_task.values() if each is not self._recovery],
            tested=tested,
            remedy=", or give recover=False",
        )
        self._costs = self._measured_costs(entrants)
        self.plan = self._planner.plan(self.rate, self._costs, began)

    def _measured_costs(self, entrants: int) -> Costs:
        stages = self._config.stages
        if stages is None and self._config.resolve_method().curvature.by_block:
            stages = 1  # each takes a sweep over the network
        return Costs(
            self.step_seconds,
            self._recovery.check_seconds,
            entrants,
            stages,
            tasks=len(self._by_task),
        )

    @property
    def step_seconds(self) -> float:
        """The time of a training step."""
        return self._recovery.step_seconds

    def refine_plan(self, stage_seconds: float, entrants: int, began: float) -> None:
        """Plan again after the candidates were compared, which shows what a stage costs.

        Args:
            stage_seconds: the time of the gradients and the solves of a stage.
            entrants: the candidates that are not excluded.
            began: when the run began, by `time.perf_counter`.
        """
        assert self._costs is not None  # since `make_plan`
        self._costs = replace(self._costs, stage=stage_seconds, entrants=entrants, contests=0)
        # The comparison may have used up the time; the target must be reached nevertheless.
        self.plan = self._planner.plan(self.planned.rate, self._costs, began, least=1)

    @property
    def contests(self) -> list[float]:
        """The sparsities at which candidates are compared before the first stage."""
        return [self._planner.tested, float(self._config.sparsity)]

    def worth(self, steps: int | None = None) -> LossesOf:
        """Return the losses after some training steps from some weights, (p,).

        Args:
            steps: the steps; by default, the few steps with which candidates are compared.
        """
        trained = self.planned.probe if steps is None else steps

        def losses(w: Tensor) -> PartLosses:
            rate = self._rate_for(w != 0, trained)
            return self._recovery.worth(w, steps=trained, rate=rate)

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
        found = self._train(kept, steps, stage, progress)
        if not found.finite:
            self._check_samples()
        if last and not found.kept:
            self.rate /= SLOWER
            shorter = max(1, int(AGAIN * steps))
            rate = self._rate_for(kept, shorter)
            again = self._recovery.run(kept, steps=shorter, rate=rate, key=stage)
            found = replace(again, steps=steps + shorter)
        self.rate = min(self.rate * FASTER, self.planned.rate) if found.kept else self.rate / SLOWER
        self._pace.count(found.steps)
        return found

    def _check_samples(self) -> None:
        """Raise an error that names a sample whose loss is not finite, if there is one."""
        check_samples(self._model, self._data.stream, self._data.loss, self.samples)

    def _train(self, kept: Tensor, steps: int, stage: int, progress: Progress | None) -> Recovered:
        """Train on the task of the run; the first stage tries both and decides between them.

        The first network is almost dense. If its loss falls further on the labels than on the
        answers of the dense network, the labels teach something that this network does not. Later,
        the loss would favour labels even where the accuracy does not: outputs that imitate others
        at a high temperature are less confident.
        """
        rate, tries = self._rate_for(kept, steps), stage == 1 and self.planned.tries_tasks
        start = Snapshot(self._model) if tries else None
        found = self._recovery.run(kept, steps=steps, rate=rate, key=stage, progress=progress)
        if start is None:
            return found
        end, (task, other) = Snapshot(self._model), self._by_task
        start.restore()
        tried = self._by_task[other].run(kept, steps=steps, rate=rate, key=stage)
        logger.info("held-out loss after training on %s: %.4g, on %s: %.4g", task,
                    found.after.mean, other, tried.after.mean)  # fmt: skip
        if tried.after.surely_below(found.after):
            self.task, found = other, tried
        else:
            end.restore()
        self._by_task[other if found.task == task else task].release()
        return replace(found, steps=2 * steps)

    def _rate_for(self, kept: Tensor, steps: int) -> float:
        """Return the rate for a support, (p,) bool: higher if it is sparser than the tested one."""
        return self.rate * rate_factor(float(kept.float().mean()), self.planned.density, steps)

    def keep_pace(self, stage: int, began: float) -> None:
        """Shorten the remaining stages if the run would otherwise exceed the time of its budget.

        Args:
            stage: the number of finished stages.
            began: when the run began, by `time.perf_counter`.
        """
        clock = Clock(time.perf_counter() - began, stage, self.seconds)
        self.plan = self._pace.shortened(self.planned, clock)

    def warn_of_solves(self, solves: Sequence[float]) -> None:
        """Warn once if the gradients and solves of the finished stages exceed the budget."""
        self._pace.warn_of_solves(solves, len(self.planned.steps))

    def expected(self, stage: int) -> float:
        """Return about how long the stages after `stage` finished ones take, in seconds."""
        steps = self.planned.steps[stage:]
        seconds = self._pace.seconds(steps)
        if seconds is not None:
            return seconds
        return math.nan if self._costs is None else self._costs.seconds(sum(steps))

    def steps(self, stage: int) -> int:
        """Return the training steps of a stage, from 1."""
        steps = self.planned.steps
        return steps[min(stage, len(steps)) - 1]

    @property
    def seconds(self) -> float:
        """The time of all training so far, that of candidates and tests included."""
        return sum(recovery.seconds for recovery in self._by_task.values())

    def state(self) -> dict[str, Any]:
        """Return the plan, ready for JSON."""
        return {"plan": asdict(self.planned), "rate": self.rate, "task": self.task}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue with a plan that `state` returned."""
        self.plan = RecoveryPlan(**state["plan"])
        self.rate, self.task = state["rate"], state["task"]
        for recovery in self._by_task.values():
            recovery.use_batch(self.plan.batch)
