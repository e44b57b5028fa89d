"""Run: the stages of one call of `chita.prune`, their file, and the result."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch

from chita.pruning.recovery.snapshot import Snapshot, load_tensors, other_tensors
from chita.pruning.repair import repair
from chita.pruning.result import PruneResult
from chita.pruning.result_rows import RepairRow, StageRow
from chita.pruning.resume import FinishedStages, StageFile, describe_run
from chita.pruning.schedule import StagePath
from chita.pruning.setup import Setup
from chita.pruning.stage import Stage
from chita.report.progress import StageBar, stage_bar


class Run:
    """One call of `chita.prune`.

    Args:
        setup: the parts of the run.
        began: when the call began, by `time.perf_counter`.
    """

    def __init__(self, setup: Setup, began: float) -> None:
        self.setup, self.began = setup, began
        self.stage = Stage(setup)
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
        data, sizes = (
            self.setup.calibration,
            {"n": self.setup.calibration.rows, "p": self.setup.weights.size},
        )
        run = describe_run(self.setup.config, self.setup.model, data.stream, sizes)
        stage_file = StageFile(folder, run=run, stages=len(self.setup.config.plan()))
        finished = self.setup.ranks.from_first(lambda: stage_file.begin(resume=resume))
        self.stage_file = stage_file if self.setup.ranks.rank == 0 else None
        if finished is not None:
            data.stream.seek(finished.place)
            self.setup.weights.replace(finished.weights)
            load_tensors(self.setup.model, finished.others)
            if self.setup.recovery is not None and finished.recovery is not None:
                self.setup.recovery.load_state(finished.recovery)
            self.rows, self.kept = finished.rows, finished.kept.to(self.setup.weights.device)
            self.setup.search.load_state(finished.search)
            self.began -= finished.seconds

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

    def all_stages(self, progress: bool) -> PruneResult:
        """Run the stages, and return the result.

        Args:
            progress: whether to show a progress bar.
        """
        with stage_bar(show=progress) as bar:
            path = self._path(bar)
            while (sparsity := path.next(self.rows)) is not None:
                bar.describe(f"pruning, {sparsity:.1%} sparse")
                if self.setup.recovery is not None:
                    self.setup.recovery.keep_pace(len(self.rows), self.began)
                    bar.begin(sum(self.setup.recovery.planned.steps))
                w0, start = self.setup.weights.vector(), self._snapshot()
                try:
                    row, support = self.stage.run(len(self.rows) + 1, sparsity, w0, bar)
                except BaseException:
                    self.setup.weights.assign(w0)  # again, if restoring was itself interrupted
                    if start is not None:
                        start.restore()
                    raise
                if not row.accepted and start is not None:
                    start.restore()
                self.rows.append(row)
                if row.accepted:
                    self.kept = torch.zeros_like(self.kept)
                    self.kept[support] = True
                if self.stage_file is not None:
                    self.stage_file.write(self.finished())
                if self.setup.recovery is None:
                    bar.advance()
        if self.stage_file is not None and len(self.rows) < self.stage_file.total:
            self.stage_file.total = len(self.rows)  # the search for a floor has ended
            self.stage_file.write(self.finished())
        return self.result()

    def _path(self, bar: StageBar) -> StagePath:
        """Return the sparsities of the stages, and set up the bar; with recovery, plan them."""
        path, done = self.setup.policy.path, len(self.rows)
        if self.setup.recovery is None:
            bar.begin(path.stages)
            bar.advance(done)
            return path
        if self.setup.recovery.plan is None:
            bar.describe("range test")
            self.setup.recovery.make_plan(
                self.setup.pruned_to,
                entrants=self.setup.search.entrants,
                began=self.began,
            )
            if self.setup.search.entrants > 1:
                bar.describe("comparing candidates")
                self.stage.compare(self.setup.recovery.contests)
        plan = self.setup.recovery.planned
        bar.begin(sum(plan.steps))
        bar.advance(sum(plan.steps[:done]))
        if self.stage_file is not None:
            self.stage_file.total = len(plan.sparsities)
        return replace(path, stages=len(plan.sparsities), plan=plan.sparsities)

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
                self.setup.model, self.setup.dense, self.setup.held_out.losses_now, self.setup.holds
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
