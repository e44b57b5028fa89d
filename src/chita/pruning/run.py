"""The stages of a run (algorithm 1): gradients, a solve, new weights, and again."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chita.curvature.row_by_row import reached_weights
from chita.curvature.source import LocalModel, SampledModel
from chita.errors import ChitaError
from chita.model.counts import count
from chita.model.losses import Loss
from chita.model.stream import first_sample
from chita.model.weights import check_finite, check_model
from chita.pruning.agreement import agreed_ranks
from chita.pruning.auto.metrics import Shape
from chita.pruning.auto.search import STEPS, Guard, Guarded
from chita.pruning.calibration import calibrate
from chita.pruning.config import PruneConfig
from chita.pruning.floor_check import Judge
from chita.pruning.held_out import HeldOut
from chita.pruning.repair import RepairRow, dense_means, repair
from chita.pruning.result import PruneResult, Seconds, StageRow, layer_rows
from chita.pruning.resume import Finished, StageFile, describe_run
from chita.pruning.stage_path import StagePath
from chita.pruning.stage_problem import StageProblem
from chita.pruning.storage import choose_store
from chita.pruning.supports import Supports, choose_weights, within_limits
from chita.report.progress import stage_bar
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.matrix.memory import peak_memory_bytes
from chita.solver.ranks import ALONE, Ranks

logger = logging.getLogger(__name__)


class Run:
    """One call of `chita.prune`: what the stages share."""

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
        check_model(model)
        self.model, self.ranks, self.method = model, ranks, config.resolve_method()
        self.weights = weights = choose_weights(model, config)
        check_finite(weights)
        self.calibration = data = calibrate(model, batches, loss, config, held_out)
        if self.method.curvature.uses_gradients:
            stage = data.stream.restarted().take(data.rows * data.batch, data.batch)
            named = config.include is not None
            self.weights = weights = reached_weights(
                model, weights, stage, data.row_loss, named=named
            )
        self.config = config = within_limits(config, weights)
        self.supports = Supports(model, weights, config)
        self.sample = data.stream.sample or first_sample(batches)  # to count multiply-adds with
        sharers = agreed_ranks(ranks, config, self.supports, weights, n=data.rows)
        forms = config.forms(data.rows, weights.size)
        if sharers.size > 1:  # the columns are divided so that no block is cut
            forms = forms.of_one_size()
        layout = Layout(weights.sizes, forms.first.block_size, self.supports.units)
        self.shape, self.division = Shape.of(model, weights), Division(sharers, layout)
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
                ranks=sharers,
                store=choose_store(config, self.supports, self.division, forms, weights, data.rows),
            )
        )
        self.held_out, self.measured = (
            HeldOut(model, weights, samples, data.loss, sharers, data.batch)
            for samples in (data.held_out, data.measured)
        )
        self.judge = Judge(self.measured, config.floor)
        ridge = None if config.ridge == "auto" else config.ridge
        self.guard = Guard(forms, ridge=ridge, steps=STEPS if config.guarded else ())
        self.dense = dense_means(model, weights, data) if config.guarded else None
        self.rows: list[StageRow] = []
        self.kept = torch.ones(weights.size, dtype=torch.bool, device=weights.device)
        self.stage_file: StageFile | None = None
        if not self.supports.kept(config.sparsity):
            logger.warning("sparsity=%s of %d weights leaves none", config.sparsity, weights.size)

    def keep_stages(self, folder: Path, *, resume: bool) -> None:
        """Write each finished stage into `folder`, after going on from the one found there."""
        data, sizes = self.calibration, {"n": self.calibration.rows, "p": self.weights.size}
        run = describe_run(self.config, self.model, data.stream, sizes)
        stage_file = StageFile(folder, run=run, stages=len(self.config.plan()))
        finished = self.ranks.from_first(lambda: stage_file.begin(resume=resume))
        self.stage_file = stage_file if self.ranks.rank == 0 else None
        if finished is not None:
            data.stream.seek(finished.place)
            self.weights.replace(finished.weights)
            self.rows, self.kept = finished.rows, finished.kept.to(self.weights.device)
            self.guard.load_state(finished.guard)
            self.began -= finished.seconds

    def finished(self) -> Finished:
        return Finished(
            weights=self.weights.vector(),
            kept=self.kept,
            rows=self.rows,
            place=self.calibration.stream.place,
            guard=self.guard.state(),
            seconds=time.perf_counter() - self.began,
        )

    def next_sparsity(self) -> float | None:
        """That of the next stage, or None: planned, or for a guarded run as the loss has it."""
        config, plan = self.config, self.config.plan()
        free = config.guarded and config.schedule is None
        path = StagePath(
            config.start, config.sparsity, len(plan), config.hold, None if free else plan
        )
        return path.next(self.rows)

    def all_stages(self, progress: bool) -> PruneResult:
        with stage_bar(len(self.config.plan()), show=progress) as advance:
            for row in self.rows:
                advance(row.sparsity)
            while (sparsity := self.next_sparsity()) is not None:
                w0 = self.weights.vector()
                try:
                    row, support = self.stage(len(self.rows) + 1, sparsity, w0)
                except BaseException:
                    self.weights.assign(w0)  # a second time, if that itself was interrupted
                    raise
                self.rows.append(row)
                if row.accepted:
                    self.kept = torch.zeros_like(self.kept)
                    self.kept[support] = True
                if self.stage_file is not None:
                    self.stage_file.write(self.finished())
                advance(sparsity)
        if self.stage_file is not None and len(self.rows) < self.stage_file.total:
            self.stage_file.total = len(self.rows)  # the search for a floor is done
            self.stage_file.write(self.finished())
        return self.result()

    def result(self) -> PruneResult:
        """What came of the stages, after batch norm and biases are repaired where that helps."""
        self.judge.sum_up(self.rows, self.config.pattern)
        repairs: list[RepairRow] = []
        if self.dense is not None:
            repairs = repair(self.model, self.dense, self.held_out.losses_now, self.judge.holds)
        measurement = self.judge.measure()
        seconds = Seconds(
            gradients=sum(row.gradient_seconds for row in self.rows),
            solve=sum(row.solve_seconds for row in self.rows),
            guard=sum(row.guard_seconds for row in self.rows),
            total=time.perf_counter() - self.began,
        )
        sample = None if self.sample is None else self.sample.to(self.weights.device)
        return PruneResult(
            model=self.model,
            masks={name: mask.clone() for name, mask in self.weights.split(self.kept).items()},
            layers=layer_rows(self.weights),
            stages=self.rows,
            samples=self.calibration.rows,
            seconds=seconds,
            peak_memory_bytes=peak_memory_bytes(self.weights.device),
            config=self.config,
            counts=count(self.model, None if sample is None else sample.inputs),
            groups=self.supports.group_counts(self.kept),
            repairs=repairs,
            held_out_loss=measurement.loss,
            held_out_error=measurement.loss_error,
        )

    def stage(self, number: int, sparsity: float, w0: Tensor) -> tuple[StageRow, Tensor]:
        """One stage of algorithm 1: gradients at the current weights, a solve, the new weights."""
        start, guarded_before = time.perf_counter(), self._guard_seconds()
        local = self.curvature.at(w0)
        middle = time.perf_counter()
        problem = self.problem(local, w0, self.supports.kept(sparsity))
        chosen = self.choose(problem, number)
        solution = chosen.choice.solution
        w = solution.w.to(self.weights.dtype)
        if not (math.isfinite(solution.objective) and bool(w.isfinite().all())):
            raise ChitaError(
                f"stage {number} gave weights or an objective that are not finite; try a larger "
                "ridge, or a loss of a smaller scale"
            )
        self.weights.replace(w)
        choice_loss = chosen.choice.held_out_loss
        if self.config.guarded and self.held_out.halved:
            choice_loss = self.held_out.losses_now().mean  # it was chosen on a half
        measurement = self.judge.measure()
        for loss in (choice_loss, measurement.loss):
            if loss is not None and not math.isfinite(loss):
                raise ChitaError(
                    f"stage {number} has a held-out loss of {loss}; the data must be finite, or "
                    "the ridge larger"
                )
        if not measurement.accepted:
            self.weights.replace(w0)
        guard_seconds = self._guard_seconds() - guarded_before
        has_objective = self.method.curvature.uses_gradients and chosen.step == 1
        row = StageRow(
            stage=number,
            sparsity=sparsity,
            kept=len(solution.support),
            ridge=chosen.choice.ridge if self.method.takes_ridge else None,
            objective=solution.objective if has_objective else None,
            loss=local.loss,
            held_out_loss=measurement.loss,
            iterations=solution.iterations,
            converged=solution.converged,
            jitter=solution.jitter,
            gradient_seconds=middle - start,
            solve_seconds=time.perf_counter() - middle - guard_seconds,
            guard_seconds=guard_seconds,
            held_out_error=measurement.loss_error,
            choice_loss=choice_loss,
            sample_gradients=local.sample_gradients,
            accepted=measurement.accepted,
            **asdict(chosen.form),
            step=chosen.step,
            accuracy=measurement.accuracy,
            dead=problem.dead.count,
            why=chosen.why,
            candidates=[trial.to_dict() for trial in chosen.trials],
        )
        logger.info("%s", row)
        return row, solution.support

    def _guard_seconds(self) -> float:
        return self.held_out.seconds + self.measured.seconds

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
            options=self.config.resolve_options(),
            drop_dead=self.config.drops_dead,
        )

    def choose(self, problem: StageProblem, number: int) -> Guarded:
        """What the stage does: the solution of the best candidate, or of the only one."""
        if self.held_out.batches:
            losses = self.held_out.turn(number) if self.config.guarded else self.held_out.losses
            return self.guard.choose(
                problem.solve, problem.still, problem.mask, losses, self.held_out.scout
            )
        return self.guard.only(problem.solve)
