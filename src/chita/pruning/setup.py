"""The parts of a run that all stages share, made before the first stage."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from chita.curvature.gradient_rows import reached_weights
from chita.curvature.source import CurvatureSource, LocalModel, SampledModel, no_rows
from chita.model.losses import Loss
from chita.model.samples.arrays import InputSpec
from chita.model.samples.stream import first_sample
from chita.pruning.budget import parse_budget
from chita.pruning.calibration import Calibration, calibrate
from chita.pruning.config import PruneConfig
from chita.pruning.fewer_samples import GRADIENT, fewer_samples
from chita.pruning.floor import FloorCheck
from chita.pruning.forecast import Forecast
from chita.pruning.held_out import HeldOut, Measurement
from chita.pruning.rank_agreement import (
    agree_on_calibration,
    agree_on_model,
    agree_on_options,
    agree_on_weights,
    agreed_ranks,
)
from chita.pruning.recovery.planning import FORWARD, first_estimate
from chita.pruning.recovery.stage_recovery import StageRecovery
from chita.pruning.repair import dense_means
from chita.pruning.stage_policy import policy_for
from chita.pruning.stage_problem import Shape, StageProblem
from chita.pruning.storage import choose_store
from chita.pruning.supports import Supports, choose_weights, within_limits
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.matrix.memory import ENTRY, format_bytes
from chita.solver.ranks import ALONE, Ranks

logger = logging.getLogger(__name__)


class Setup:
    """The model, its samples, and everything that acts on them in one call of `chita.prune`."""

    def __init__(
        self,
        model: nn.Module,
        batches: Any,
        loss: Loss | None,
        config: PruneConfig,
        ranks: Ranks = ALONE,
        held_out: Any = None,
        forecast: Forecast | None = None,
    ) -> None:
        self.forecast = forecast or Forecast()
        self.forecast.begin("reading samples")
        if config.recovers:
            self.forecast.expect(parse_budget("budget", config.budget).planned_seconds)
        self.model, self.ranks, self.method = model, ranks, config.resolve_method()
        agree_on_options(ranks, asdict(config))
        agree_on_model(ranks, model, sync=config.sync)
        self.weights = weights = choose_weights(model, config)
        shares = self.method.curvature.uses_gradients
        data = calibrate(model, batches, loss, config, held_out, weights.size)
        data = agree_on_calibration(ranks, data, config, shared=self.method.measures_weights)
        self.calibration = data = self._in_time(data, config)
        if shares:
            stage = data.stream.restarted().take(data.rows * data.batch, data.batch)
            named = config.include is not None
            self.weights = weights = reached_weights(
                model, weights, stage, data.row_loss, named=named
            )
            self.weights = weights = agree_on_weights(ranks, weights, sync=config.sync)
        self.config = config = within_limits(config, weights)
        self.policy = policy = policy_for(config, weights.size)
        self.supports = Supports(model, weights, config)
        # To count multiply-adds.
        self.sample = data.stream.sample or first_sample(batches, InputSpec.of(model))
        self.shape = Shape.of(model, weights)
        self.space = policy.candidates(data.rows, weights.size)
        self.division = self._divide()
        self.curvature = self.method.curvature(self._sampled_model(data))
        self.final_curvature = self._final_curvature()
        self.held_out = self._choosing(data, config)
        self.measured = HeldOut(model, weights, data.measured, data.loss, ranks, data.batch)
        self.floor = None if config.floor is None else FloorCheck(self.measured, config.floor)
        self.search = policy.search(self.space)
        if config.recovers:
            self.forecast.expect(self._first_estimate())
        self.recovery = self._recovery(loss) if config.recovers else None
        self.dense = dense_means(model, weights, data) if policy.repairs else None
        self._warn_of_zeros()

    def _warn_of_zeros(self) -> None:
        """Warn if no weight is kept, or if more weights are zero already than are pruned."""
        sparsity, size = self.config.sparsity, self.weights.size
        kept, nonzero = self.supports.kept(sparsity), int(self.weights.vector().count_nonzero())
        if not kept:
            logger.warning("sparsity=%s of %d weights leaves none", sparsity, size)
        elif nonzero < kept < size:
            logger.warning(
                "%d of %d weights are zero already, more than sparsity=%s prunes: some of them may "
                "become non-zero; to keep them zero, give sparsity=%.3g or more",
                size - nonzero,
                size,
                sparsity,
                1 - nonzero / size,
            )

    def _in_time(self, data: Calibration, config: PruneConfig) -> Calibration:
        """Return fewer samples if the network is slow on its machine, the same on all ranks."""
        if not (config.recovers and data.held_out):
            return data
        seconds = self.ranks.from_first(self._choosing(data, config).sample_seconds)
        budget, adapts = parse_budget("budget", config.budget), policy_for(config).adapts_batch
        keep_batch = config.batch is not None or not adapts
        return fewer_samples(data, budget, seconds, keep_batch=keep_batch)

    def _choosing(self, data: Calibration, config: PruneConfig) -> HeldOut:
        """Return the samples to choose by; a choice among trainings has their arithmetic."""
        return HeldOut(
            self.model,
            self.weights,
            data.held_out,
            data.loss,
            self.ranks,
            data.batch,
            fast=config.recovers,
        )

    def _divide(self) -> Division:
        """Divide the columns among the ranks; the candidates must then respect the cuts."""
        weights, base = self.weights, self.policy.formulation
        ranks = agreed_ranks(self.ranks, self.config, self.supports, n=self.calibration.rows)
        if ranks.size > 1:  # no block is cut
            self.space = self.space.with_one_block_size(base)
        block_size = self.space.first.apply(base).block_size
        return Division(ranks, Layout(weights.sizes, block_size, self.supports.units))

    def _final_curvature(self) -> CurvatureSource | None:
        """Return the source for the last solve of all, which uses the samples to choose by as well.

        It is None without such a solve. Only sweeps have one: their inputs come from all samples.
        After a solve, training and the search for a floor still choose by these samples, and those
        of `held_out=` never enter a solve.
        """
        config, data = self.config, self.calibration
        chooses = config.recovers or config.floor is not None or data.other is not None
        if not data.held_out or chooses or not self.method.curvature.by_block:
            return None
        return self.method.curvature(self._sampled_model(data.joined()))

    def _sampled_model(self, data: Calibration) -> SampledModel:
        """Return the model and the samples, from which the curvature source computes A."""
        weights = self.weights
        return SampledModel(
            self.model,
            weights,
            data.stream,
            rows=data.rows,
            batch=data.batch,
            loss=data.loss,
            row_loss=data.row_loss,
            distilled=self.config.distills,
            ranks=self.division.ranks,
            count_rows=self.forecast.count_rows,
            store=choose_store(
                self.policy, self.supports, self.division, self.space, weights, self._rows(data)
            ),
        )

    def _first_estimate(self) -> float:
        """Return about how long the run takes, from the time of some held-out samples."""
        data, budget = self.calibration, parse_budget("budget", self.config.budget)
        sample, gradients = self.held_out.sample_seconds(), self.search.needs_gradients
        return first_estimate(
            budget,
            FORWARD * sample,
            samples=int(min(budget.samples, data.trained_on)),
            held_out=sum(batch.size for batch in data.held_out),
            at_once=data.at_once,
            entrants=self.search.entrants,
            stage_seconds=GRADIENT * data.rows * data.batch * sample if gradients else 0.0,
        )

    def _recovery(self, loss: Loss | None) -> StageRecovery:
        return StageRecovery(
            self.model,
            self.weights,
            self.calibration,
            loss,
            self.config,
            held_out=self.held_out,
            ranks=self.ranks,
        )

    def _rows(self, data: Calibration) -> int:
        """Return the rows of A."""
        return self.method.curvature.matrix_rows(data.rows, self.weights.size)

    def describe(self, stages: int) -> tuple[str, str]:
        """Describe the size of a run with this many stages, and how to make it shorter."""
        data, p = self.calibration, self.weights.size
        samples = data.rows * data.batch
        if self.recovery is not None:
            samples, shorter = self.recovery.samples, "budget='fast', or a number of seconds, makes"
        else:
            shorter = "fewer stages or samples make"
        parts = [f"{p:,} weights", f"{samples:,} samples", f"{stages} stages"]
        if self.method.curvature.uses_gradients:
            size = self._rows(data) * p * ENTRY
            parts.append(f"{format_bytes(min(size, self.config.memory_bytes or size))} for A")
        return ", ".join(parts), f"{shorter} it shorter"

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
            drop_dead=self.config.drops_dead and local.matrix.n > 0,
        )

    def local_model(self, w0: Tensor) -> LocalModel:
        """Return the local model around w0, (p,); without A if the next choice does not use it."""
        if self.search.needs_gradients:
            return self.curvature.at(w0)
        return self.without_curvature(w0)

    def pruned_to(self, sparsity: float) -> Tensor:
        """Return the current weights, pruned to a sparsity by their size alone, (p,)."""
        w0 = self.weights.vector()
        problem = self.problem(self.without_curvature(w0), w0, self.supports.kept(sparsity))
        return problem.mask(self.policy.formulation)[0]

    def without_curvature(self, w0: Tensor) -> LocalModel:
        """Return a local model around w0, (p,), whose A has no rows."""
        return LocalModel(no_rows(w0[self.division.columns]))

    def measure(self) -> Measurement:
        """Measure the model on samples that are not used for any choice except the floor."""
        return self.measured.measure() if self.floor is None else self.floor.measure()

    def holds(self) -> bool:
        """Return whether the model satisfies the floor, if there is one."""
        return self.floor is None or self.floor.measure().accepted

    @property
    def held_out_seconds(self) -> float:
        """The time that all held-out losses have taken so far."""
        return self.held_out.seconds + self.measured.seconds

    @property
    def training_seconds(self) -> float:
        """The time that all training has taken so far."""
        return 0.0 if self.recovery is None else self.recovery.seconds
