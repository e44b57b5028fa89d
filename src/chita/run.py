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

from chita.allocation import allocate
from chita.batches import Batch, SampleStream, first_sample
from chita.calibration import divide_samples
from chita.checks import check_finite, check_model
from chita.config import PruneConfig, kept_weights
from chita.counts import Counts, count
from chita.distill import distilled
from chita.division import Division
from chita.errors import ChitaError
from chita.gradients import Loss, gradient_matrix, layer_inputs, total_loss
from chita.l0.algorithm import Layout
from chita.l0.constraint import ANY_SUPPORT, Constraint
from chita.l0.groups import Groups
from chita.l0.problem import NOT_SHARED, Problem
from chita.l0.solve import Solution, solve_problem
from chita.matrix import GradientMatrix
from chita.metric import METRICS, Shape
from chita.patterned import Patterned, choose_weights
from chita.progress import stage_bar
from chita.ranks import ALONE, Ranks
from chita.resident import peak_memory_bytes
from chita.result import PruneResult, Seconds, StageRow, layer_rows
from chita.resume import Finished, StageFile, describe_run, fingerprint
from chita.ridge import Choice, RidgeSearch
from chita.storage import HeldMatrix, SharedTarget, Store
from chita.storage.scaled import ScaledMatrix
from chita.store import check_store, pick_store
from chita.surgeon.layer_wise import LayerInputs

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
        self.model, self.loss, self.config = model, loss, config
        self.method = config.resolve_method()
        check_model(model)
        self.weights = choose_weights(model, config)
        self.patterned: Patterned | None = None
        if config.pattern is not None:
            self.patterned = Patterned(model, self.weights, config.pattern)
        check_finite(self.weights)
        self.allocation = allocate(
            {weight.name: weight.parameter.shape for weight in self.weights},
            kept_weights(self.weights.size, config.sparsity),
            rule=config.allocation,
            at_least=config.at_least,
            at_most=config.at_most,
        )
        self.samples = 0
        self.held_out: list[Batch] = []
        self.search = RidgeSearch()
        self.rows: list[StageRow] = []
        self.kept = torch.ones(self.weights.size, dtype=torch.bool, device=self.weights.device)
        self.stage_file: StageFile | None = None
        self.stream = SampleStream(())  # without curvature nothing is read
        if self.method.curvature != "none":
            self.stream = SampleStream(batches, seed=config.seed)
            if config.loss is not None:
                self.stream, self.loss = distilled(model, batches, config.loss, config.seed)
            self.samples, self.held_out = divide_samples(self.stream, config)
        self.sample = self.stream.sample or first_sample(batches)  # to count multiply-adds with
        sizes = tuple(weight.parameter.numel() for weight in self.weights)
        self.ranks = ranks
        units = self.patterned.units if self.patterned is not None else None
        self.division = Division(self._sharers(), Layout(sizes, config.block_size, units))
        check_store(
            config,
            self.method,
            self.division.layout,
            n=self.samples,
            device=self.weights.device,
            ranks=self.division.ranks,
        )
        self.store = self._pick_store()
        if not self.kept_at(config.sparsity):
            logger.warning(
                "sparsity=%s of %d weights leaves none", config.sparsity, self.weights.size
            )

    def kept_at(self, sparsity: float) -> int:
        """k, the weights that a stage keeps."""
        k = kept_weights(self.weights.size, sparsity)
        return k if self.patterned is None else self.patterned.kept(k)

    def _sharers(self) -> Ranks:
        """The ranks that share A; without gradients there is little to share, and each does all."""
        size = self.ranks.size
        if size == 1 or self.method.curvature != "fisher":
            return ALONE
        if not self.method.streams:
            raise ChitaError(
                f"method {self.method.name!r} runs in one process, and there are {size} ranks; "
                "chita++, chita-bso and chita-cd share the work"
            )
        if self.patterned is not None or self.allocation is not None:
            raise ChitaError(NOT_SHARED.format(size))
        weights = fingerprint([("weights", self.weights.vector())])
        own = {**asdict(self.config), "n": self.samples, "the fingerprint of the weights": weights}
        first = self.ranks.from_first(lambda: own)
        differences = [
            f"{name} is {first[name]!r} on rank 0, {own[name]!r} on rank {self.ranks.rank}"
            for name in own
            if own[name] != first[name]
        ]
        if not self.ranks.all(not differences):
            raise ChitaError(
                f"the ranks differ: {'; '.join(differences) or 'another one has other arguments'}; "
                "give all the same arguments, weights and number of samples"
            )
        if self.samples < size:
            raise ChitaError(f"samples={self.samples} rows are too few for {size} ranks")
        return self.ranks

    def _pick_store(self) -> Store:
        """Where the A of each stage goes: shared by ranks, or as this one's budget allows."""
        division, n = self.division, self.samples
        if division.ranks.size > 1:
            return partial(
                SharedTarget, ranks=division.ranks, bounds=division.bounds, counts=division.rows(n)
            )
        kept = [self.kept_at(sparsity) for sparsity in self.config.plan()]
        return pick_store(
            self.config, self.method, division.layout, n=n, kept=kept, device=self.weights.device
        )

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
            self.search.last = finished.ridge_step
            self.began -= finished.seconds

    def finished(self) -> Finished:
        return Finished(
            weights=self.weights.vector(),
            kept=self.kept,
            rows=self.rows,
            place=self.stream.place,
            ridge_step=self.search.last,
            seconds=time.perf_counter() - self.began,
        )

    def all_stages(self, progress: bool) -> PruneResult:
        plan, done = self.config.plan(), len(self.rows)
        with stage_bar(len(plan), show=progress) as advance:
            for row in self.rows:
                advance(row.sparsity)
            for number, sparsity in enumerate(plan[done:], start=done + 1):
                w0 = self.weights.vector()
                try:
                    row, support = self.stage(number, sparsity, w0)
                except BaseException:
                    self.weights.assign(w0)  # a second time, if that itself was interrupted
                    raise
                self.rows.append(row)
                self.kept = torch.zeros_like(self.kept)
                self.kept[support] = True
                if self.stage_file is not None:
                    self.stage_file.write(self.finished())
                advance(sparsity)
        seconds = Seconds(
            gradients=sum(row.gradient_seconds for row in self.rows),
            solve=sum(row.solve_seconds for row in self.rows),
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
            groups=None if self.patterned is None else self.patterned.counts(self.kept),
            counts=self._count(),
        )

    def _count(self) -> Counts:
        """What the pruned model costs on one calibration sample."""
        sample = None if self.sample is None else self.sample.to(self.weights.device)
        return count(self.model, None if sample is None else sample.inputs)

    def stage(self, number: int, sparsity: float, w0: Tensor) -> tuple[StageRow, Tensor]:
        """One stage of algorithm 1: gradients at the current weights, a solve, the new weights."""
        start = time.perf_counter()
        matrix, loss = self.gradients(w0)
        middle = time.perf_counter()
        choice = self.choose(matrix, w0, self.kept_at(sparsity))
        solution = choice.solution
        w = solution.w.to(self.weights.dtype)
        if not (math.isfinite(solution.objective) and bool(w.isfinite().all())):
            raise ChitaError(
                f"stage {number} gave weights or an objective that are not finite; try a larger "
                "ridge, or a loss of a smaller scale"
            )
        self.weights.replace(w)
        end = time.perf_counter()
        curvature = self.method.curvature
        row = StageRow(
            stage=number,
            sparsity=sparsity,
            kept=len(solution.support),
            ridge=choice.ridge if curvature != "none" else None,
            objective=solution.objective if curvature == "fisher" else None,
            loss=loss,
            held_out_loss=choice.held_out_loss,
            iterations=solution.iterations,
            converged=solution.converged,
            jitter=solution.jitter,
            gradient_seconds=middle - start,
            solve_seconds=end - middle,
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
        batch, loss = self.config.batch, self.loss
        if self.method.curvature == "inputs":
            seen = layer_inputs(
                self.model, self.weights, self.stream, samples=self.samples * batch, loss=loss
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
            loss=loss,
            store=self.store,
        )
        self.stream.skip(sum(rows[ranks.rank + 1 :]) * batch)
        total = ranks.sum(torch.tensor(found.loss * rows[ranks.rank], dtype=torch.float64))
        return found.matrix, float(total) / self.samples

    def constraint(self, k: int) -> Constraint:
        """Which supports a stage may have that keeps k weights."""
        if self.allocation is None:
            return ANY_SUPPORT
        least, most = self.allocation.stage(k)
        return Groups.in_a_row(self.allocation.sizes, least, most, self.weights.device)

    def choose(self, matrix: GradientMatrix, w0: Tensor, k: int) -> Choice:
        """The solution of a stage with the ridge given, or with the best one found."""
        config = self.config
        options = replace(
            self.method.options, continuation=config.continuation, seed=int(config.seed)
        )
        if config.iterations is not None:
            options = replace(options, iterations=config.iterations)
        alpha = 1 / config.batch if config.first_order else 0.0
        start = self.division.part(w0).to(matrix.dtype)
        constraint = self.constraint(k)

        scale: Tensor | None = None
        A = matrix
        if config.metric != "plain":
            shape = Shape(
                tuple(w.parameter.numel() for w in self.weights),
                tuple(len(w.parameter) for w in self.weights),
            )
            scale = METRICS[config.metric](matrix, start, shape)
            A, start = ScaledMatrix(matrix, scale), start * scale

        constraint = ANY_SUPPORT if self.patterned is None else self.patterned.constraint

        def solve(ridge: float) -> Solution:
            problem = Problem.build(A, start, lam=ridge, alpha=alpha, constraint=constraint)
            part = solve_problem(
                problem, k, self.method.algorithm, options=options, layout=self.division.layout
            )
            if scale is not None:
                part = replace(part, w=part.w / scale)
            return self.division.whole(part)

        def held_out_loss(w: Tensor) -> float:
            ranks = self.division.ranks
            with self.weights.lent(w):
                own = self.held_out[ranks.rank :: ranks.size]
                total, samples = total_loss(self.model, own, self.loss)
            both = ranks.sum(torch.tensor([total, samples], dtype=torch.float64))
            return float(both[0] / both[1])

        if self.held_out:
            return self.search.choose(solve, held_out_loss)
        ridge = 0.0 if config.ridge == "auto" else config.ridge  # without curvature it is unused
        return Choice(solve(ridge), ridge, None)
