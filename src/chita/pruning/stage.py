"""One stage of a run (algorithm 1): gradients at the current weights, a solve, new weights."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.pruning.auto.candidates import Trial
from chita.pruning.auto.search import StageChoice
from chita.pruning.auto.tournament import Tournament
from chita.pruning.held_out import Measurement
from chita.pruning.option_text import AUTO
from chita.pruning.recovery.recovery import Recovered
from chita.pruning.result_rows import StageRow
from chita.pruning.setup import Setup
from chita.pruning.stage_problem import StageProblem
from chita.report.progress import StageBar

logger = logging.getLogger(__name__)


class Stage:
    """Runs the stages of a run, one at a time.

    Args:
        setup: the parts of the run.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._compared: list[Trial] = []  # before the next stage

    def compare(self, sparsities: Sequence[float]) -> None:
        """Compare the candidates at some sparsities before the first stage.

        The first stages cost little with any candidate and would choose at random.

        Args:
            sparsities: those at which the candidates matter.
        """
        setup, w0 = self._setup, self._setup.weights.vector()
        assert isinstance(setup.search, Tournament) and setup.recovery is not None
        local, worth = setup.local_model(w0), setup.recovery.worth()
        for sparsity in sparsities:
            problem = setup.problem(local, w0, setup.supports.kept(sparsity))
            self._compared += setup.search.contest(problem, setup.held_out.losses, worth)

    def run(
        self, number: int, sparsity: float, w0: Tensor, bar: StageBar
    ) -> tuple[StageRow, Tensor]:
        """Run one stage of algorithm 1: gradients at the current weights, a solve, new weights.

        Args:
            number: the number of the stage, from 1.
            sparsity: its target.
            w0: the current weights, (p,).
            bar: shows the training steps.

        Returns:
            The row of the stage, and its support, (k,).
        """
        checked_before, trained_before = self._setup.held_out_seconds, self._setup.training_seconds
        start = time.perf_counter()
        local = self._setup.local_model(w0)
        middle = time.perf_counter()
        problem = self._setup.problem(local, w0, self._setup.supports.kept(sparsity))
        chosen = self._choose(problem, number)
        solution, k = chosen.choice.solution, problem.k
        if (kept := len(solution.support)) != k:
            raise ChitaError(
                f"method {self._setup.method.name!r} must keep {k} weights, but keeps {kept}"
            )
        mask_loss = self._mask_loss(problem, chosen)
        recovered, choice_loss, measurement = self._apply(number, w0, chosen, bar)
        held_out_seconds = self._setup.held_out_seconds - checked_before
        trained_seconds = self._setup.training_seconds - trained_before
        has_objective = self._setup.method.curvature.uses_gradients and chosen.step == 1
        row = StageRow(
            stage=number,
            sparsity=sparsity,
            kept=kept,
            ridge=chosen.choice.ridge if self._setup.method.takes_ridge else None,
            objective=solution.objective if has_objective else None,
            loss=local.loss,
            held_out_loss=measurement.loss,
            iterations=solution.iterations,
            converged=solution.converged,
            jitter=solution.jitter,
            gradient_seconds=middle - start,
            solve_seconds=time.perf_counter() - middle - held_out_seconds - trained_seconds,
            guard_seconds=held_out_seconds,
            held_out_error=measurement.loss_error,
            choice_loss=choice_loss,
            sample_gradients=local.sample_gradients,
            accepted=measurement.accepted,
            candidate=chosen.candidate,
            step=chosen.step,
            accuracy=measurement.accuracy,
            dead=problem.dead.count,
            why=chosen.why,
            mask_loss=mask_loss,
            solved_loss=None if recovered is None else recovered.before.mean,
            recovery_steps=0 if recovered is None else recovered.steps,
            recovery_seconds=trained_seconds,
            recovered=recovered is not None and recovered.kept,
            candidates=[trial.to_dict() for trial in (*self._compared, *chosen.trials)],
        )
        self._compared = []
        logger.info("%s", row)
        return row, solution.support

    def _choose(self, problem: StageProblem, number: int) -> StageChoice:
        """Return the choice of the stage: the best candidate, or the only one."""
        chooses = self._setup.policy.repairs or self._setup.method.takes_ridge
        if not (self._setup.held_out.batches and chooses):
            return self._setup.search.only(problem)
        losses = self._setup.policy.choosing_losses(self._setup.held_out, number)
        if isinstance(self._setup.search, Tournament) and self._setup.recovery is not None:
            return self._setup.search.choose(problem, losses, self._setup.recovery.worth())
        return self._setup.search.choose(problem, losses, self._setup.held_out.screening_losses)

    def _mask_loss(self, problem: StageProblem, chosen: StageChoice) -> float | None:
        """Return the held-out loss of the mask alone, to show what a solve gains."""
        if self._setup.recovery is None or self._setup.method.name != AUTO:
            return None
        w, _ = problem.mask(chosen.candidate.apply(self._setup.policy.formulation))
        return self._setup.held_out.losses(w).mean

    def _apply(
        self, number: int, w0: Tensor, chosen: StageChoice, bar: StageBar
    ) -> tuple[Recovered | None, float | None, Measurement]:
        """Give the model the weights of a stage; restore w0, (p,), if the floor does not hold.

        Returns:
            The outcome of the training, the loss by which the stage was chosen, and the
            measurement.
        """
        solution = chosen.choice.solution
        w = solution.w.to(self._setup.weights.dtype)
        if not (math.isfinite(solution.objective) and bool(w.isfinite().all())):
            raise ChitaError(
                f"the weights or the objective of stage {number} are not finite; try a larger "
                "ridge, or a loss of a smaller scale"
            )
        self._setup.weights.replace(w)
        recovered = None
        if self._setup.recovery is None:
            choice_loss = self._setup.policy.choice_loss(self._setup.held_out, chosen.choice)
        else:
            kept = torch.zeros(len(w), dtype=torch.bool, device=w.device)
            kept[solution.support] = True
            recovered = self._setup.recovery.run(kept, number, bar.advance)
            choice_loss = recovered.after.mean
        measurement = self._setup.measure()
        for loss in (choice_loss, measurement.loss):
            if loss is not None and not math.isfinite(loss):
                raise ChitaError(
                    f"the held-out loss of stage {number} is {loss}; the data must be finite, or "
                    "the ridge larger"
                )
        if not measurement.accepted:
            self._setup.weights.replace(w0)
        return recovered, choice_loss, measurement
