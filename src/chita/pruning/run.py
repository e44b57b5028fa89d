"""The stages of a run (algorithm 1): gradients, a solve, new weights, and again."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chita.curvature.gradient_rows import reached_weights
from chita.curvature.source import LocalModel, SampledModel
from chita.errors import ChitaError
from chita.model.losses import Loss
from chita.model.sample_stream import first_sample
from chita.pruning.auto.search import StageChoice
from chita.pruning.calibration import calibrate
from chita.pruning.config import PruneConfig
from chita.pruning.floor import FloorCheck
from chita.pruning.held_out import HeldOut, Measurement
from chita.pruning.rank_agreement import agreed_ranks
from chita.pruning.repair import dense_means, repair
from chita.pruning.result import PruneResult
from chita.pruning.result_rows import RepairRow, StageRow
from chita.pruning.resume import FinishedStages, StageFile, describe_run
from chita.pruning.stage_policy import policy_for
from chita.pruning.stage_problem import Shape, StageProblem
from chita.pruning.storage import choose_store
from chita.pruning.supports import Supports, choose_weights, within_limits
from chita.report.progress import stage_bar
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.ranks import ALONE, Ranks

logger = logging.getLogger(__name__)


class Run:
    """One call of `chita.prune`: the state that the stages share."""

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        loss: Loss | None,
        config: PruneConfig,
        ranks: Ranks = ALONE,
        held_out: Iterable[Any] | None = None,
    ) -> None:
        self.began = time.perf_counter()
        self.model, self.ranks, self.method = model, ranks, config.resolve_method()
        self.weights = weights = choose_weights(model, config)
        self.calibration = data = calibrate(model, batches, loss, config, held_out)
        if self.method.curvature.uses_gradients:
            stage = data.stream.restarted().take(data.rows * data.batch, data.batch)
            named = config.include is not None
            self.weights = weights = reached_weights(
                model, weights, stage, data.row_loss, named=named
            )
        self.config = config = within_limits(config, weights)
        self.policy = policy = policy_for(config)
        self.supports = Supports(model, weights, config)
        self.sample = data.stream.sample or first_sample(batches)  # to count multiply-adds
        self.shape = Shape.of(model, weights)
        self.space = policy.candidates(data.rows, weights.size)
        self.division = self._divide()
        self.curvature = self.method.curvature(
            SampledModel(
                model,
                weights,
                data.stream,
                rows=data.rows,
                batch=data.batch,
                loss=data.loss,
                row_loss=data.row_loss,
                distilled=config.loss is not None,
                ranks=self.division.ranks,
                store=choose_store(
                    policy, self.supports, self.division, self.space, weights, data.rows
                ),
            )
        )
        self.held_out, self.measured = (
            HeldOut(model, weights, samples, data.loss, self.division.ranks, data.batch)
            for samples in (data.held_out, data.measured)
        )
        self.floor = None if config.floor is None else FloorCheck(self.measured, config.floor)
        self.search = policy.search(self.space)
        self.dense = dense_means(model, weights, data) if policy.repairs else None
        self.rows: list[StageRow] = []
        self.kept = torch.ones(weights.size, dtype=torch.bool, device=weights.device)
        self.stage_file: StageFile | None = None
        if not self.supports.kept(config.sparsity):
            logger.warning("sparsity=%s of %d weights leaves none", config.sparsity, weights.size)

    def _divide(self) -> Division:
        """Divide the columns among the ranks; the candidates must then respect the cuts."""
        weights, ranks, base = self.weights, ALONE, self.policy.formulation
        if self.ranks.size > 1:
            n = self.calibration.rows
            ranks = agreed_ranks(self.ranks, self.config, self.supports, weights, n=n)
        if ranks.size > 1:  # no block is cut
            self.space = self.space.with_one_block_size(base)
        block_size = self.space.first.apply(base).block_size
        return Division(ranks, Layout(weights.sizes, block_size, self.supports.units))

    def keep_stages(self, folder: Path, *, resume: bool) -> None:
        """Write each finished stage into a folder, and continue from the one found there.

        Args:
            folder: the folder of the run.
            resume: whether to continue.
        """
        data, sizes = self.calibration, {"n": self.calibration.rows, "p": self.weights.size}
        run = describe_run(self.config, self.model, data.stream, sizes)
        stage_file = StageFile(folder, run=run, stages=len(self.config.plan()))
        finished = self.ranks.from_first(lambda: stage_file.begin(resume=resume))
        self.stage_file = stage_file if self.ranks.rank == 0 else None
        if finished is not None:
            data.stream.seek(finished.place)
            self.weights.replace(finished.weights)
            self.rows, self.kept = finished.rows, finished.kept.to(self.weights.device)
            self.search.load_state(finished.search)
            self.began -= finished.seconds

    def finished(self) -> FinishedStages:
        """Return the state after the stages so far."""
        return FinishedStages(
            weights=self.weights.vector(),
            kept=self.kept,
            rows=self.rows,
            place=self.calibration.stream.place,
            search=self.search.state(),
            seconds=time.perf_counter() - self.began,
        )

    def all_stages(self, progress: bool) -> PruneResult:
        """Run the stages, and return the result.

        Args:
            progress: whether to show a progress bar.
        """
        path = self.policy.path
        with stage_bar(len(self.config.plan()), show=progress) as advance:
            for row in self.rows:
                advance(row.sparsity)
            while (sparsity := path.next(self.rows)) is not None:
                w0 = self.weights.vector()
                try:
                    row, support = self.stage(len(self.rows) + 1, sparsity, w0)
                except BaseException:
                    self.weights.assign(w0)  # again, if restoring was itself interrupted
                    raise
                self.rows.append(row)
                if row.accepted:
                    self.kept = torch.zeros_like(self.kept)
                    self.kept[support] = True
                if self.stage_file is not None:
                    self.stage_file.write(self.finished())
                advance(sparsity)
        if self.stage_file is not None and len(self.rows) < self.stage_file.total:
            self.stage_file.total = len(self.rows)  # the search for a floor has ended
            self.stage_file.write(self.finished())
        return self.result()

    def stage(self, number: int, sparsity: float, w0: Tensor) -> tuple[StageRow, Tensor]:
        """Run one stage of algorithm 1: gradients at the current weights, a solve, new weights.

        Args:
            number: the number of the stage, from 1.
            sparsity: its target.
            w0: the current weights, (p,).

        Returns:
            The row of the stage, and its support, (k,).
        """
        start, checked_before = time.perf_counter(), self._held_out_seconds()
        local = self.curvature.at(w0)
        middle = time.perf_counter()
        problem = self.problem(local, w0, self.supports.kept(sparsity))
        chosen = self.choose(problem, number)
        solution, k = chosen.choice.solution, problem.k
        if (kept := len(solution.support)) != k:
            raise ChitaError(f"method {self.method.name!r} must keep {k} weights, but keeps {kept}")
        choice_loss, measurement = self._apply(number, w0, chosen)
        held_out_seconds = self._held_out_seconds() - checked_before
        has_objective = self.method.curvature.uses_gradients and chosen.step == 1
        row = StageRow(
            stage=number,
            sparsity=sparsity,
            kept=kept,
            ridge=chosen.choice.ridge if self.method.takes_ridge else None,
            objective=solution.objective if has_objective else None,
            loss=local.loss,
            held_out_loss=measurement.loss,
            iterations=solution.iterations,
            converged=solution.converged,
            jitter=solution.jitter,
            gradient_seconds=middle - start,
            solve_seconds=time.perf_counter() - middle - held_out_seconds,
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
            candidates=[trial.to_dict() for trial in chosen.trials],
        )
        logger.info("%s", row)
        return row, solution.support

    def problem(self, local: LocalModel, w0: Tensor, k: int) -> StageProblem:
        """Return the problem of a stage that keeps k weights."""
        return StageProblem(
            local,
            w0,
            k,
            constraint=self.supports.constraint(k),
            shape=self.shape,
            division=self.division,
            algorithm=self.method.algorithm,
            drop_dead=self.config.drops_dead,
        )

    def choose(self, problem: StageProblem, number: int) -> StageChoice:
        """Return the choice of the stage: the best candidate, or the only one."""
        if not self.held_out.batches:
            return self.search.only(problem)
        losses = self.policy.choosing_losses(self.held_out, number)
        return self.search.choose(problem, losses, self.held_out.screening_losses)

    def _apply(
        self, number: int, w0: Tensor, chosen: StageChoice
    ) -> tuple[float | None, Measurement]:
        """Give the model the weights of a stage; restore w0, (p,), if the floor does not hold.

        Returns:
            The loss by which the stage was chosen, and the measurement.
        """
        solution = chosen.choice.solution
        w = solution.w.to(self.weights.dtype)
        if not (math.isfinite(solution.objective) and bool(w.isfinite().all())):
            raise ChitaError(
                f"the weights or the objective of stage {number} are not finite; try a larger "
                "ridge, or a loss of a smaller scale"
            )
        self.weights.replace(w)
        choice_loss = self.policy.choice_loss(self.held_out, chosen.choice)
        measurement = self.measure()
        for loss in (choice_loss, measurement.loss):
            if loss is not None and not math.isfinite(loss):
                raise ChitaError(
                    f"the held-out loss of stage {number} is {loss}; the data must be finite, or "
                    "the ridge larger"
                )
        if not measurement.accepted:
            self.weights.replace(w0)
        return choice_loss, measurement

    def measure(self) -> Measurement:
        """Measure the model on samples that are not used for any choice."""
        return self.measured.measure() if self.floor is None else self.floor.measure()

    def holds(self) -> bool:
        """Return whether the model satisfies the floor, if there is one."""
        return self.floor is None or self.floor.measure().accepted

    def _held_out_seconds(self) -> float:
        return self.held_out.seconds + self.measured.seconds

    def result(self) -> PruneResult:
        """Repair batch norm and biases if the policy does so, and return the result."""
        if self.floor is not None:
            reached = max((row.sparsity for row in self.rows if row.accepted), default=None)
            highest = max(row.sparsity for row in self.rows)
            self.floor.warn(reached, highest, self.config.pattern)
        repairs: list[RepairRow] = []
        if self.dense is not None:
            repairs = repair(self.model, self.dense, self.held_out.losses_now, self.holds)
        return PruneResult.collect(
            self.model,
            self.weights,
            self.kept,
            self.rows,
            config=self.config,
            samples=self.calibration.rows,
            sample=self.sample,
            groups=self.supports.group_counts(self.kept),
            repairs=repairs,
            measurement=self.measure(),
            began=self.began,
        )
