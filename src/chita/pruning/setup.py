"""The parts of a run that all stages share, made before the first stage."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from chita.curvature.gradient_rows import reached_weights
from chita.curvature.source import LocalModel, SampledModel, no_rows
from chita.model.losses import Loss
from chita.model.sample_stream import first_sample
from chita.pruning.calibration import calibrate
from chita.pruning.config import PruneConfig
from chita.pruning.floor import FloorCheck
from chita.pruning.held_out import HeldOut, Measurement
from chita.pruning.rank_agreement import agreed_ranks
from chita.pruning.recovery.stages import StageRecovery
from chita.pruning.repair import dense_means
from chita.pruning.stage_policy import policy_for
from chita.pruning.stage_problem import Shape, StageProblem
from chita.pruning.storage import choose_store
from chita.pruning.supports import Supports, choose_weights, within_limits
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.ranks import ALONE, Ranks

logger = logging.getLogger(__name__)


class Setup:
    """The model, its samples, and everything that acts on them in one call of `chita.prune`."""

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        loss: Loss | None,
        config: PruneConfig,
        ranks: Ranks = ALONE,
        held_out: Iterable[Any] | None = None,
    ) -> None:
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
        sharing = ranks if config.recovers else self.division.ranks
        self.held_out, self.measured = (
            HeldOut(model, weights, samples, data.loss, sharing, data.batch)
            for samples in (data.held_out, data.measured)
        )
        self.floor = None if config.floor is None else FloorCheck(self.measured, config.floor)
        self.search = policy.search(self.space)
        self.recovery = self._recovery(loss) if config.recovers else None
        self.dense = dense_means(model, weights, data) if policy.repairs else None
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
        return self._without_gradients(w0)

    def pruned_to(self, sparsity: float) -> Tensor:
        """Return the current weights, pruned to a sparsity by their size alone, (p,)."""
        w0 = self.weights.vector()
        problem = self.problem(self._without_gradients(w0), w0, self.supports.kept(sparsity))
        return problem.mask(self.policy.formulation)[0]

    def _without_gradients(self, w0: Tensor) -> LocalModel:
        return LocalModel(no_rows(w0[self.division.columns]))

    def measure(self) -> Measurement:
        """Measure the model on samples that are not used for any choice."""
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
