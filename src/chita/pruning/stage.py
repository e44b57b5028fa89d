"""One stage of a run (algorithm 1): gradients at the current weights, a solve, new weights."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from chita.curvature.source import LocalModel
from chita.errors import ChitaError
from chita.pruning.auto.candidates import Trial
from chita.pruning.auto.stage_choice import MASK, ContestLosses, Solvable, StageChoice
from chita.pruning.held_out import Measurement
from chita.pruning.rank_agreement import copy_from_first
from chita.pruning.recovery.guarded_training import Recovered
from chita.pruning.result_rows import StageRow
from chita.pruning.setup import Setup
from chita.pruning.stage_problem import StageProblem

logger = logging.getLogger(__name__)


class Stage:
    """Runs the stages of a run, one at a time.

    Args:
        setup: the parts of the run.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._compared: list[Trial] = []  # before the next stage
        self._local: LocalModel | None = None  # of the comparison, for the stage after it

    def compare(self, sparsities: Sequence[float]) -> float:
        """Compare the candidates at some sparsities before the first stage.

        The first stages cost little with any candidate and would choose at random.

        Args:
            sparsities: those at which the candidates matter.

        Returns:
            An estimate of the time of a stage without its training: that of the gradients, if they
            are still needed, and of the solves of two candidates.
        """
        setup, w0 = self._setup, self._setup.weights.vector()
        assert setup.recovery is not None  # no other run compares candidates before it starts
        start = time.perf_counter()
        local = self._local = setup.local_model(w0)
        middle, trained = time.perf_counter(), setup.training_seconds
        self._compared = setup.search.compare_all(
            [setup.problem(local, w0, setup.supports.kept(each)) for each in sparsities],
            ContestLosses(
                setup.held_out.losses,
                setup.recovery.worth(),
                setup.recovery.worth(setup.recovery.steps(1)),
            ),
        )
        solves = time.perf_counter() - middle - (setup.training_seconds - trained)
        gradients = middle - start if setup.search.needs_gradients else 0.0
        return gradients + 2 * solves / max(len(self._compared), 1)

    def run(self, number: int, sparsity: float, w0: Tensor) -> tuple[StageRow, Tensor]:
        """Run one stage: new weights, the training after them, and a measurement.

        Args:
            number: the number of the stage, from 1.
            sparsity: its target.
            w0: the current weights, (p,).

        Returns:
            The row of the stage, and which weights are kept, (p,) bool.
        """
        checked_before, trained_before = self._setup.held_out_seconds, self._setup.training_seconds
        start = time.perf_counter()
        row, kept = self.solve(number, sparsity, w0)
        recovered = self._train(number, kept)
        choice_loss = row.choice_loss if recovered is None else recovered.after.mean
        solved_loss = None if recovered is None else recovered.before.mean
        measurement = self._measure(number, w0, choice_loss)
        held_out_seconds = self._setup.held_out_seconds - checked_before
        trained_seconds = self._setup.training_seconds - trained_before
        others = row.gradient_seconds + held_out_seconds + trained_seconds
        row = replace(
            row,
            held_out_loss=measurement.loss,
            solve_seconds=time.perf_counter() - start - others,
            held_out_seconds=held_out_seconds,
            held_out_error=measurement.loss_error,
            choice_loss=choice_loss,
            accepted=measurement.accepted,
            accuracy=measurement.accuracy,
            mask_loss=solved_loss if self._chose_mask(row.step) else row.mask_loss,
            solved_loss=solved_loss,
            recovery_steps=0 if recovered is None else recovered.steps,
            recovery_seconds=trained_seconds,
            recovered=recovered is not None and recovered.kept,
            trained_on=None if recovered is None else recovered.task,
        )
        logger.info("%s", row)
        return row, kept

    def solve(self, number: int, sparsity: float, w0: Tensor) -> tuple[StageRow, Tensor]:
        """Give the model the weights of a stage: gradients at the current weights, and a solve.

        Args:
            number: the number of the stage, from 1.
            sparsity: its target.
            w0: the current weights, (p,).

        Returns:
            The row of the stage as far as it is known, and which weights are kept, (p,) bool.
        """
        start = time.perf_counter()
        self._setup.forecast.begin("gradients")
        local, self._local = self._local or self._setup.local_model(w0), None
        gradient_seconds = time.perf_counter() - start
        self._setup.forecast.begin("solve")
        problem = self._setup.problem(local, w0, self._setup.supports.kept(sparsity))
        chosen = self._choose(problem, problem.k, number)
        mask_loss = self._mask_loss(problem, chosen)
        kept, choice_loss = self._apply(number, chosen)
        solution = chosen.choice.solution
        has_objective = self._setup.method.curvature.uses_gradients and chosen.step == 1
        compared, self._compared = self._compared, []
        row = StageRow(
            stage=number,
            sparsity=sparsity,
            kept=len(solution.support),
            ridge=chosen.choice.ridge if self._setup.method.takes_ridge else None,
            objective=solution.objective if has_objective else None,
            loss=local.loss,
            held_out_loss=None,
            iterations=solution.iterations,
            converged=solution.converged,
            jitter=solution.jitter,
            gradient_seconds=gradient_seconds,
            solve_seconds=0.0,
            choice_loss=choice_loss,
            sample_gradients=local.sample_gradients,
            candidate=chosen.candidate,
            step=chosen.step,
            dead=problem.dead.count,
            why=chosen.why,
            mask_loss=mask_loss,
            candidates=[trial.to_dict() for trial in (*compared, *chosen.trials)],
        )
        return row, kept

    @property
    def _searches(self) -> bool:
        """Whether a stage compares solutions by held-out losses."""
        return bool(self._setup.held_out.batches) and self._setup.policy.compares_solutions

    def _choose(self, problem: Solvable, k: int, number: int) -> StageChoice:
        """Return the choice of the stage, which keeps k weights: the best candidate, or the only
        one.
        """
        chosen = self._candidate(problem, number)
        if (kept := len(chosen.choice.solution.support)) != k:
            raise ChitaError(
                f"method {self._setup.method.name!r} must keep {k} weights, but keeps {kept}"
            )
        return self._from_first(chosen)

    def _candidate(self, problem: Solvable, number: int) -> StageChoice:
        setup = self._setup
        if not self._searches:
            return setup.search.only(problem)
        worth = None if setup.recovery is None else setup.recovery.worth
        losses = setup.policy.choosing_losses(setup.held_out, number)
        return setup.search.choose(
            problem, losses, setup.policy.other_losses(setup.held_out, worth)
        )

    def _from_first(self, chosen: StageChoice) -> StageChoice:
        """Return the weights and the support of rank 0 if every rank has solved by itself."""
        ranks, solution = self._setup.ranks, chosen.choice.solution
        if ranks.size == self._setup.division.ranks.size:
            return chosen
        w, support = solution.w.clone(), solution.support.clone()
        copy_from_first(ranks, [w, support])
        same = replace(chosen.choice, solution=replace(solution, w=w, support=support))
        return replace(chosen, choice=same)

    def _mask_loss(self, problem: StageProblem, chosen: StageChoice) -> float | None:
        """Return the held-out loss of the mask alone, to show what a solve gains, or None."""
        if self._chose_mask(chosen.step) or not self._setup.policy.compares_masks:
            return None
        w, _ = problem.mask(chosen.candidate.apply(self._setup.policy.formulation))
        return self._setup.held_out.losses(w).mean

    def _chose_mask(self, step: float | None) -> bool:
        """Return whether the weights of the stage are those of a mask alone."""
        return self._setup.policy.compares_masks and step == MASK

    def _apply(self, number: int, chosen: StageChoice) -> tuple[Tensor, float | None]:
        """Give the model the chosen weights.

        Returns:
            Which weights are kept, (p,) bool, and the loss by which they were chosen; None if a
            training follows.
        """
        solution = chosen.choice.solution
        w = solution.w.to(self._setup.weights.dtype)
        if not (math.isfinite(solution.objective) and bool(w.isfinite().all())):
            raise ChitaError(
                f"the weights or the objective of stage {number} are not finite; try a larger "
                "ridge, or a loss of a smaller scale"
            )
        self._setup.weights.replace(w)
        kept = torch.zeros(len(w), dtype=torch.bool, device=w.device)
        kept[solution.support] = True
        if self._setup.recovery is not None:
            return kept, None
        return kept, self._setup.policy.choice_loss(self._setup.held_out, chosen.choice)

    def _train(self, number: int, kept: Tensor) -> Recovered | None:
        """Train the weights that are kept, (p,) bool; None without recovery."""
        recovery, forecast = self._setup.recovery, self._setup.forecast
        if recovery is None:
            return None
        forecast.begin_training(recovery.steps(number), recovery.step_seconds)
        return recovery.run(kept, number, forecast.step)

    def _measure(self, number: int, w0: Tensor, choice_loss: float | None) -> Measurement:
        """Measure the model; restore w0, (p,), if the floor does not hold."""
        self._setup.forecast.begin("held-out check")
        measurement = self._setup.measure()
        for loss in (choice_loss, measurement.loss):
            if loss is not None and not math.isfinite(loss):
                raise ChitaError(
                    f"the held-out loss of stage {number} is {loss}; the data must be finite, or "
                    "the ridge larger"
                )
        if not measurement.accepted:
            self._setup.weights.replace(w0)
        return measurement
