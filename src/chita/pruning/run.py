"""Run: the stages of one call of `chita.prune`, their file, and the result."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch

from chita.errors import ChitaError
from chita.pruning.block_by_block.stage import BlockStage
from chita.pruning.recovery.snapshot import Snapshot, load_tensors, other_tensors
from chita.pruning.repair import repair
from chita.pruning.result import PruneResult
from chita.pruning.result_rows import RepairRow, StageRow
from chita.pruning.resume import FinishedStages, StageFile, describe_run
from chita.pruning.schedule import StagePath
from chita.pruning.setup import Setup
from chita.pruning.stage import Stage


class Run:
    """One call of `chita.prune`.

    Args:
        setup: the parts of the run.
        began: when the call began, by `time.perf_counter`.
    """

    def __init__(self, setup: Setup, began: float) -> None:
        self.setup, self.began = setup, began
        self.stage = (BlockStage if setup.method.curvature.by_block else Stage)(setup)
        self.rows: list[StageRow] = []
        weights = setup.weights
        self.kept = torch.ones(weights.size, dtype=torch.bool, device=weights.device)
        self.stage_file: StageFile | None = None

    def keep_stages(self, folder: Path, *, resume: bool) -> None:
        """Write each finished stage into a folder, and continue from the one found there.

        Args:
            folder: the folder of the run.
            resume: whether to continue.
        """
        data = self.setup.calibration
        sizes = {"n": data.rows, "p": self.setup.weights.size}
        run = describe_run(self.setup.config, self.setup.model, data.stream, data.other, sizes)
        stage_file = StageFile(folder, run=run, stages=len(self.setup.config.plan()))
        finished = self.setup.ranks.from_first(lambda: stage_file.begin(resume=resume))
        self.stage_file = stage_file if self.setup.ranks.rank == 0 else None
        if finished is not None:
            data.stream.seek(finished.place)
            self.setup.weights.replace(finished.weights)
            load_tensors(self.setup.model, finished.others)
            self._load_states(finished, stage_file.path)
            self.rows, self.kept = finished.rows, finished.kept.to(self.setup.weights.device)
            self.began -= finished.seconds

    def _load_states(self, finished: FinishedStages, path: Path) -> None:
        """Continue with the stored plan of the training and the stored state of the search."""
        try:
            if self.setup.recovery is not None and finished.recovery is not None:
                self.setup.recovery.load_state(finished.recovery)
            self.setup.search.load_state(finished.search)
        except (KeyError, TypeError) as error:
            raise ChitaError(
                f"cannot continue from {path}, which another version of chita wrote "
                f"({type(error).__name__}: {error}); delete it (--overwrite) to start anew"
            ) from error

    def finished(self) -> FinishedStages:
        """Return the state after the stages so far."""
        return FinishedStages(
            weights=self.setup.weights.vector(),
            kept=self.kept,
            others={}
            if self.setup.recovery is None
            else other_tensors(self.setup.model, self.setup.weights),
            recovery=None if self.setup.recovery is None else self.setup.recovery.state(),
            rows=self.rows,
            place=self.setup.calibration.stream.place,
            search=self.setup.search.state(),
            seconds=time.perf_counter() - self.began,
        )

    def all_stages(self) -> PruneResult:
        """Run the stages, and return the result."""
        path = self._path()
        while (sparsity := path.next(self.rows)) is not None:
            number = len(self.rows) + 1
            self._look_ahead(path.stages)
            self.setup.forecast.begin_stage(number, path.stages, sparsity)
            w0, start = self.setup.weights.vector(), self._snapshot()
            try:
                row, kept = self.stage.run(number, sparsity, w0)
            except BaseException:
                self.setup.weights.assign(w0)  # again, if restoring was itself interrupted
                if start is not None:
                    start.restore()
                raise
            if not row.accepted and start is not None:
                start.restore()
            self.rows.append(row)
            if self.setup.recovery is not None:
                solves = [each.gradient_seconds + each.solve_seconds for each in self.rows]
                self.setup.recovery.warn_of_solves(solves)
            if row.accepted:
                self.kept = kept
            if self.stage_file is not None:
                self.stage_file.write(self.finished())
        if self.stage_file is not None and len(self.rows) < self.stage_file.total:
            self.stage_file.total = len(self.rows)  # the search for a floor has ended
            self.stage_file.write(self.finished())
        return self.result()

    def _path(self) -> StagePath:
        """Return the sparsities of the stages; with recovery, plan them."""
        path, forecast = self.setup.policy.path, self.setup.forecast
        if self.setup.recovery is None:
            if path.plan is None and not self.rows and self.setup.held_out.batches:
                forecast.begin("held-out check")
                path = self._starting_late(path)
            return path
        if self.setup.recovery.plan is None:
            forecast.begin("range test")
            self.setup.recovery.make_plan(
                self.setup.pruned_to,
                entrants=self.setup.search.entrants,
                began=self.began,
                expect=forecast.expect,
            )
            forecast.announce(*self.setup.describe(len(self.setup.recovery.planned.steps)))
            if self.setup.search.entrants > 1:
                forecast.begin("comparing candidates")
                seconds = self.stage.compare(self.setup.recovery.contests)
                self.setup.recovery.refine_plan(seconds, self.setup.search.entrants, self.began)
        plan = self.setup.recovery.planned
        if self.stage_file is not None:
            self.stage_file.total = len(plan.sparsities)
        return replace(path, stages=len(plan.sparsities), plan=plan.sparsities)

    def _look_ahead(self, stages: int) -> None:
        """Estimate the time of the remaining stages, `stages` in all at most."""
        done, recovery, forecast = len(self.rows), self.setup.recovery, self.setup.forecast
        if recovery is not None:
            recovery.keep_pace(done, self.began)
            forecast.expect(recovery.expected(done))
            return
        forecast.extrapolate_stages([row.seconds for row in self.rows], stages - done)
        if done == 1:
            forecast.announce(*self.setup.describe(stages))

    def _starting_late(self, path: StagePath) -> StagePath:
        """Return the path from the highest sparsity that costs little."""
        w0 = self.setup.weights.vector()
        try:
            return path.starting_late(self._pruned_loss)
        except BaseException:
            self.setup.weights.assign(w0)  # again, if restoring was itself interrupted
            raise

    def _pruned_loss(self, sparsity: float) -> float:
        """Return the held-out loss of the weights, pruned without an update."""
        return self.setup.held_out.losses(self.setup.pruned_to(sparsity)).mean

    def _snapshot(self) -> Snapshot | None:
        return None if self.setup.recovery is None else Snapshot(self.setup.model)

    def result(self) -> PruneResult:
        """Repair batch norm and biases if the policy does so, and return the result."""
        if self.setup.floor is not None:
            reached = max((row.sparsity for row in self.rows if row.accepted), default=None)
            highest = max(row.sparsity for row in self.rows)
            self.setup.floor.warn(reached, highest, self.setup.config.pattern)
        repairs: list[RepairRow] = []
        if self.setup.dense is not None:
            repairs = repair(
                self.setup.model,
                self.setup.dense,
                self.setup.held_out.losses_now,
                self.setup.holds,
                self.setup.ranks,
            )
        return PruneResult.collect(
            self.setup.model,
            self.setup.weights,
            self.kept,
            self.rows,
            config=self.setup.config,
            samples=self.setup.calibration.rows,
            sample=self.setup.sample,
            groups=self.setup.supports.group_counts(self.kept),
            repairs=repairs,
            measurement=self.setup.measure(),
            began=self.began,
        )
