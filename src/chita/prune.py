"""chita.prune: one-shot pruning in one stage (CHITA) or many (CHITA++, algorithm 1)."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chita.batches import Batch, SampleStream
from chita.calibration import divide_samples
from chita.checks import check_finite, check_model
from chita.config import PruneConfig, Ridge, kept_weights
from chita.errors import ChitaError
from chita.gradients import Loss, gradient_matrix, layer_inputs, mean_loss
from chita.l0.algorithm import Layout
from chita.l0.problem import Problem
from chita.l0.solve import Solution, solve_problem
from chita.matrix import GradientMatrix
from chita.memory import check_memory
from chita.progress import stage_bar
from chita.result import PruneResult, Seconds, StageRow, layer_rows, peak_memory_bytes
from chita.resume import Finished, StageFile, describe_run
from chita.ridge import Choice, RidgeSearch
from chita.storage import HeldMatrix
from chita.surgeon.layer_wise import LayerInputs
from chita.weights import Weights

logger = logging.getLogger(__name__)


def prune(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    sparsity: float,
    loss: Loss | None = None,
    method: str = "chita++",
    solver: str | None = None,
    samples: int | None = None,
    batch: int = 16,
    ridge: Ridge = "auto",
    first_order: bool = True,
    stages: int | None = None,
    schedule: str | None = None,
    start: float = 0.2,
    hold: float = 0.0,
    iterations: int | None = None,
    continuation: int = 0,
    block_size: int | None = None,
    include: Sequence[str] | str | None = None,
    exclude: Sequence[str] | str | None = None,
    inplace: bool = True,
    seed: int = 0,
    progress: bool = True,
    checkpoints: str | Path | None = None,
    resume: bool = False,
) -> PruneResult:
    """Set a share of a model's weights to zero and move the rest so that it still works.

    The model changes only when a stage has succeeded: an error or an interruption leaves it with
    the weights of the last finished stage.

    Args:
        model: any trained module; the device is the model's.
        batches: calibration data, a list, a DataLoader or any other re-iterable of
            (inputs, targets) or of dicts (then the model's own `.loss` is used).
        sparsity: the share of the prunable weights to set to zero, in [0, 1).
        loss: loss(outputs, targets) -> scalar; the cross-entropy by default.
        method: "chita++", "chita-bso" or "chita-cd"; "magnitude" of all weights or, as
            "magnitude-uniform", of each layer; "obd", "obs", "l-obs", "woodfisher", "woodtaylor",
            "m-fac" or "cbs". Of these last seven only "woodtaylor" uses the first-order term.
        solver: the single-stage method inside CHITA++, "bso" (default) or "cd".
        samples: n, the rows of A; by default what the data give, at most 1000.
        batch: m, the samples averaged into one row; the given batches are cut up or joined to m.
        ridge: lambda, or "auto" to pick it by the loss on held-out calibration samples.
        first_order: whether the model of the loss has its first-order term, scaled by 1/m.
        stages: f; 60 for CHITA++, 1 for the others by default.
        schedule: "exponential", "linear", "constant" or "polynomial" (default).
        start: the sparsity of the first stage.
        hold: the last share of the stages that stays at the target.
        iterations: IHT updates at most a stage; 50 for CHITA-CD, 5 for CHITA-BSO and CHITA++ by
            default. Rounds of swaps for CBS, 8 by default.
        continuation: shrinking supports on the way to each stage's first one; 0 starts from the
            largest weights, as the paper does; some 30 help a single stage at high sparsity.
        block_size: solve in blocks of at most this size, cut from the layers (algorithm 6).
        include: glob pattern(s) of parameter names to prune, in place of the weights of Linear
            and convolution layers.
        exclude: glob pattern(s) of parameter names to leave alone.
        inplace: prune the model itself, or a copy.
        seed: batches given as a list are read in an order drawn from it, and CBS draws its
            starts from it.
        progress: show a bar.
        checkpoints: a folder for the last finished stage, written after each.
        resume: go on after the stage found there, if any. The arguments must be the same, and the
            model as it was at the start. On a CPU the outcome is then that of an undisturbed run,
            bit for bit, unless the data come in another order, as a DataLoader may draw one.

    Raises:
        ChitaError: an argument, the model or the data do not fit; the message says how.
    """
    config = PruneConfig(
        sparsity=sparsity,
        method=method,
        solver=solver,
        samples=samples,
        batch=batch,
        ridge=ridge,
        first_order=first_order,
        stages=stages,
        schedule=schedule,
        start=start,
        hold=hold,
        iterations=iterations,
        continuation=continuation,
        block_size=block_size,
        include=include,
        exclude=exclude,
        seed=seed,
    )
    if loss is not None and not callable(loss):
        raise ChitaError(f"loss must be a function of outputs and targets, got {loss!r}")
    if resume and checkpoints is None:
        raise ChitaError("resume=True needs checkpoints, the folder of the run to go on with")
    model = model if inplace else copy.deepcopy(model)
    run = _Run(model, batches, loss, config)
    if checkpoints is not None:
        run.keep_stages(Path(checkpoints), resume=resume)
    return run.all_stages(progress)


class _Run:
    """One call of prune: what the stages share."""

    def __init__(
        self, model: nn.Module, batches: Iterable[Any], loss: Loss | None, config: PruneConfig
    ) -> None:
        self.began = time.perf_counter()
        self.model, self.loss, self.config = model, loss, config
        self.method = config.resolve_method()
        check_model(model)
        self.weights = Weights(model, config.include, config.exclude)
        check_finite(self.weights)
        self.samples = 0
        self.held_out: list[Batch] = []
        self.search = RidgeSearch()
        self.rows: list[StageRow] = []
        self.kept = torch.ones(self.weights.size, dtype=torch.bool, device=self.weights.device)
        self.stage_file: StageFile | None = None
        self.stream = SampleStream(())  # without curvature nothing is read
        if self.method.curvature != "none":
            self.stream = SampleStream(batches, seed=config.seed)
            self.samples, self.held_out = divide_samples(self.stream, config)
        sizes = tuple(weight.parameter.numel() for weight in self.weights)
        self.layout = Layout(sizes, config.block_size)
        check_memory(self.method, self.layout, self.samples, self.weights.device)
        if not kept_weights(self.weights.size, config.sparsity):
            logger.warning(
                "sparsity=%s of %d weights leaves none", config.sparsity, self.weights.size
            )

    def keep_stages(self, folder: Path, *, resume: bool) -> None:
        """Write each finished stage into `folder`, after going on from the one found there."""
        sizes = {"n": self.samples, "p": self.weights.size}
        run = describe_run(self.config, self.model, self.stream, sizes)
        self.stage_file = StageFile(folder, run=run, stages=len(self.config.plan()))
        finished = self.stage_file.begin(resume=resume)
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
        )

    def stage(self, number: int, sparsity: float, w0: Tensor) -> tuple[StageRow, Tensor]:
        """One stage of algorithm 1: gradients at the current weights, a solve, the new weights."""
        start = time.perf_counter()
        matrix, loss = self.gradients(w0)
        middle = time.perf_counter()
        choice = self.choose(matrix, w0, kept_weights(self.weights.size, sparsity))
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
        found = gradient_matrix(
            self.model, self.weights, self.stream, rows=self.samples, batch=batch, loss=loss
        )
        return found.matrix, found.loss

    def choose(self, matrix: GradientMatrix, w0: Tensor, k: int) -> Choice:
        """The solution of a stage with the ridge given, or with the best one found."""
        config = self.config
        options = replace(
            self.method.options, continuation=config.continuation, seed=int(config.seed)
        )
        if config.iterations is not None:
            options = replace(options, iterations=config.iterations)
        alpha = 1 / config.batch if config.first_order else 0.0
        start = w0.to(matrix.dtype)

        def solve(ridge: float) -> Solution:
            problem = Problem.build(matrix, start, lam=ridge, alpha=alpha)
            return solve_problem(
                problem, k, self.method.algorithm, options=options, layout=self.layout
            )

        def held_out_loss(w: Tensor) -> float:
            with self.weights.lent(w):
                return mean_loss(self.model, self.held_out, self.loss)

        if self.held_out:
            return self.search.choose(solve, held_out_loss)
        ridge = 0.0 if config.ridge == "auto" else config.ridge  # without curvature it is unused
        return Choice(solve(ridge), ridge, None)
