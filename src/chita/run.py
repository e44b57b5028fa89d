"""The stages of a run (algorithm 1): gradients, a solve, new weights, and again."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chita.agreement import agreed_ranks
from chita.bias_correction import DenseMeans
from chita.calibration import Calibration, divide_samples
from chita.checks import check_finite, check_model
from chita.config import PruneConfig
from chita.counts import Counts, count
from chita.distill import distilled
from chita.division import Division
from chita.errors import ChitaError
from chita.floor import Judge
from chita.gradients import Loss, gradient_matrix, layer_inputs
from chita.guard import STEPS, Guard, Guarded
from chita.held_out import HeldOut
from chita.l0.algorithm import Layout
from chita.matrix import GradientMatrix
from chita.metric import Shape
from chita.patterned import choose_weights
from chita.posed import Posed
from chita.progress import stage_bar
from chita.ranks import ALONE, Ranks
from chita.repair import RepairRow, repair
from chita.resident import peak_memory_bytes
from chita.result import PruneResult, Seconds, StageRow, layer_rows
from chita.resume import Finished, StageFile, describe_run
from chita.stage_path import StagePath
from chita.storage import HeldMatrix, SharedTarget, Store
from chita.store import check_store, fitting_memory, pick_store
from chita.stream import SampleStream, first_sample
from chita.supports import Supports, within_limits
from chita.surgeon.layer_wise import LayerInputs

REPAIR_SAMPLES, REPAIR_BATCH = 1024, 128  # what batch norm and biases are repaired on

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
    ) -> None:
        self.began = time.perf_counter()
        self.model, self.loss = model, loss
        self.row_loss = loss  # what the rows of A are gradients of
        self.method = config.resolve_method()
        check_model(model)
        self.weights = choose_weights(model, config)
        self.config = config = within_limits(config, self.weights)
        check_finite(self.weights)
        self.supports = Supports(model, self.weights, config)
        self.rows: list[StageRow] = []
        self.kept = torch.ones(self.weights.size, dtype=torch.bool, device=self.weights.device)
        self.stage_file: StageFile | None = None
        self.stream = SampleStream(())  # without curvature nothing is read
        self.calibration = Calibration(0, 1, [])
        if self.method.curvature != "none":
            self.stream = SampleStream(batches, seed=config.seed)
            if config.loss is not None:
                self.stream, dense = distilled(model, batches, config.loss, config.seed)
                self.loss, self.row_loss = dense.divergence, dense.row
            self.calibration = divide_samples(self.stream, config)
        self.alpha: float | Tensor = 1 / self.calibration.batch
        self.sample = self.stream.sample or first_sample(batches)  # to count multiply-adds with
        self.ranks = ranks
        self.shape = Shape.of(model, self.weights)
        forms = config.forms(self.samples, self.weights.size)
        layout = Layout(self.weights.sizes, forms.first.block_size, self.supports.units)
        sharers = agreed_ranks(ranks, config, self.supports, self.weights, n=self.samples)
        self.division = Division(sharers, layout)
        if self.division.ranks.size > 1:  # the columns are divided so that no block is cut
            size = forms.first.block_size
            forms = replace(forms, blocks=[pair for pair in forms.blocks if pair[0] == size])
        held, sharers = self.calibration.held_out, self.division.ranks
        self.held_out = HeldOut(model, self.weights, held, self.loss, sharers)
        self.judge = Judge(self.held_out, config.floor)
        given = None if config.ridge == "auto" else config.ridge
        self.guard = Guard(forms, ridge=given, steps=STEPS if config.guarded else ())
        self.store = self._pick_store()
        self.dense = self._dense_means()
        if not self.supports.kept(config.sparsity):
            logger.warning(
                "sparsity=%s of %d weights leaves none", config.sparsity, self.weights.size
            )

    @property
    def samples(self) -> int:
        """n, the rows of A."""
        return self.calibration.rows

    def _dense_means(self) -> DenseMeans | None:
        """What the repair at the end goes by; None if there is none."""
        if not self.config.guarded:
            return None
        samples = min(REPAIR_SAMPLES, self.samples * self.calibration.batch)
        size = min(REPAIR_BATCH, self.calibration.at_once, samples)
        taken = list(self.stream.take(samples - samples % size, size))
        return DenseMeans(self.model, self.weights, taken)

    def _pick_store(self) -> Store:
        """Where the A of each stage goes: shared by ranks, or as this one's budget allows."""
        division, n, device = self.division, self.samples, self.weights.device
        config = self.config
        if config.guarded and division.ranks.size == 1:
            config = replace(config, memory=fitting_memory(config, self.weights.size, n, device))
        check_store(config, self.method, division.layout, n=n, device=device, ranks=division.ranks)
        if division.ranks.size > 1:
            return partial(
                SharedTarget, ranks=division.ranks, bounds=division.bounds, counts=division.rows(n)
            )
        kept = [self.supports.kept(sparsity) for sparsity in config.plan()]
        return pick_store(config, self.method, division.layout, n=n, kept=kept, device=device)

    def keep_stages(self, folder: Path, *, resume: bool) -> None:
        """Write each finished stage into `folder`, after going on from the one found there."""
        sizes = {"n": self.samples, "p": self.weights.size}
        run = describe_run(self.config, self.model, self.stream, sizes)
        stage_file = StageFile(folder, run=run, stages=len(self.config.plan()))
        finished = self.ranks.from_first(lambda: stage_file.begin(resume=resume))
        self.stage_file = stage_file if self.ranks.rank == 0 else None
        if finished is not None:
            self.stream.seek(finished.place)
            self.weights.replace(finished.weights)
            self.rows, self.kept = finished.rows, finished.kept.to(self.weights.device)
            self.guard.load_state(finished.guard)
            self.began -= finished.seconds

    def finished(self) -> Finished:
        return Finished(
            weights=self.weights.vector(),
            kept=self.kept,
            rows=self.rows,
            place=self.stream.place,
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
        repairs = self.repair()
        seconds = Seconds(
            gradients=sum(row.gradient_seconds for row in self.rows),
            solve=sum(row.solve_seconds for row in self.rows),
            guard=sum(row.guard_seconds for row in self.rows),
            total=time.perf_counter() - self.began,
        )
        return PruneResult(
            model=self.model,
            masks={name: mask.clone() for name, mask in self.weights.split(self.kept).items()},
            layers=layer_rows(self.weights),
            stages=self.rows,
            samples=self.samples,
            seconds=seconds,
            peak_memory_bytes=peak_memory_bytes(self.weights.device),
            config=self.config,
            counts=self._count(),
            groups=self.supports.group_counts(self.kept),
            repairs=repairs,
        )

    def _count(self) -> Counts:
        """What the pruned model costs on one calibration sample."""
        sample = None if self.sample is None else self.sample.to(self.weights.device)
        return count(self.model, None if sample is None else sample.inputs)

    def repair(self) -> list[RepairRow]:
        """Batch norm and biases, where that helps the pruned network."""
        if self.dense is None:
            return []
        return repair(self.model, self.dense, self.held_out.loss_now, self.judge.holds)

    def stage(self, number: int, sparsity: float, w0: Tensor) -> tuple[StageRow, Tensor]:
        """One stage of algorithm 1: gradients at the current weights, a solve, the new weights."""
        start, guarded_before = time.perf_counter(), self.held_out.seconds
        matrix, loss = self.gradients(w0)
        middle = time.perf_counter()
        chosen = self.choose(matrix, w0, self.supports.kept(sparsity))
        solution = chosen.choice.solution
        w = solution.w.to(self.weights.dtype)
        if not (math.isfinite(solution.objective) and bool(w.isfinite().all())):
            raise ChitaError(
                f"stage {number} gave weights or an objective that are not finite; try a larger "
                "ridge, or a loss of a smaller scale"
            )
        self.weights.replace(w)
        accuracy, accepted = self.judge.judge(chosen.choice.held_out_loss)
        if not accepted:
            self.weights.replace(w0)
        guard_seconds = self.held_out.seconds - guarded_before
        curvature = self.method.curvature
        row = StageRow(
            stage=number,
            sparsity=sparsity,
            kept=len(solution.support),
            ridge=chosen.choice.ridge if curvature != "none" else None,
            objective=solution.objective if curvature == "fisher" and chosen.step == 1 else None,
            loss=loss,
            held_out_loss=chosen.choice.held_out_loss,
            iterations=solution.iterations,
            converged=solution.converged,
            jitter=solution.jitter,
            gradient_seconds=middle - start,
            solve_seconds=time.perf_counter() - middle - guard_seconds,
            guard_seconds=guard_seconds,
            accepted=accepted,
            **asdict(chosen.form),
            step=chosen.step,
            accuracy=accuracy,
            why=chosen.why,
            candidates=[trial.to_dict() for trial in chosen.trials],
        )
        logger.info("%s", row)
        return row, solution.support

    def gradients(self, w0: Tensor) -> tuple[GradientMatrix, float | None]:
        """A at the current weights, or what stands for it, and the loss there.

        Without curvature, a matrix of no rows.
        """
        if self.method.curvature == "none":
            dtype = torch.promote_types(w0.dtype, torch.float32)
            return HeldMatrix(w0.new_empty((len(w0), 0), dtype=dtype)), None
        batch = self.calibration.batch
        if self.method.curvature == "inputs":
            seen = layer_inputs(
                self.model, self.weights, self.stream, samples=self.samples * batch, loss=self.loss
            )
            return LayerInputs(seen.moments, w0), seen.loss
        ranks, rows = self.division.ranks, self.division.rows(self.samples)
        self.stream.skip(sum(rows[: ranks.rank]) * batch)
        found = gradient_matrix(
            self.model,
            self.weights,
            self.stream,
            rows=rows[ranks.rank],
            batch=batch,
            loss=self.row_loss,
            store=self.store,
        )
        self.stream.skip(sum(rows[ranks.rank + 1 :]) * batch)
        losses = ranks.gather(found.losses)
        if self.config.loss is None:
            return found.matrix, float(losses.double().mean())
        self.alpha = losses  # c, which the rows of a distilled network bring with them
        return found.matrix, None

    def choose(self, matrix: GradientMatrix, w0: Tensor, k: int) -> Guarded:
        """What the stage does: the solution of the best candidate, or of the only one."""
        config = self.config
        options = replace(
            self.method.options,
            continuation=config.continuation,
            seed=int(config.seed),
        )
        if config.iterations is not None:
            options = replace(options, iterations=config.iterations)
        posed = Posed(
            matrix,
            w0,
            k,
            constraint=self.supports.constraint(k),
            shape=self.shape,
            division=self.division,
            algorithm=self.method.algorithm,
            options=options,
            alpha=self.alpha,
        )
        if self.held_out.batches:
            held_out = self.held_out
            return self.guard.choose(posed.solve, posed.still, held_out.loss, held_out.scout)
        return self.guard.only(posed.solve)
