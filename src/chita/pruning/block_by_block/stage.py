"""A stage that prunes block by block, for methods that use the inputs of layers.

The inputs of a block are measured behind blocks that are pruned already. Each lambda that a stage
tries is therefore a sweep over the whole network. The samples that choose take no part in it; after
the last choice of a run, one more sweep uses them as well.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property

from torch import Tensor

from chita.curvature.layer_inputs import measurable_layers
from chita.curvature.source import CurvatureSource
from chita.model.sections import Sections, find_sections
from chita.model.weights import weight_axes
from chita.pruning.auto.stage_choice import StageChoice
from chita.pruning.block_by_block.layer_solver import LayerSolver
from chita.pruning.block_by_block.plan import samples_at_once, store_samples
from chita.pruning.block_by_block.sweep import Sweep, SweepStatistics, Swept
from chita.pruning.block_by_block.swept_problem import SweptProblem
from chita.pruning.rank_agreement import copy_from_first
from chita.pruning.result_rows import StageRow
from chita.pruning.setup import Setup
from chita.pruning.stage import Stage
from chita.solver.solve import Solution

RIDGES = 6  # lambdas that a search tries, about


class BlockStage(Stage):
    """Runs the stages of a run, each block by block.

    Args:
        setup: the parts of the run.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._axes = weight_axes(setup.model, setup.weights)

    def solve(self, number: int, sparsity: float, w0: Tensor) -> tuple[StageRow, Tensor]:
        """Prune the model block by block; see `Stage.solve`."""
        setup, k, measured = self._setup, self._setup.supports.kept(sparsity), SweepStatistics()
        outcome: Solution | Swept
        candidate = setup.space.first
        if self._searches:
            chosen = self._search(number, k, w0, measured)
            kept, choice_loss = self._apply(number, chosen)
            outcome, ridge = chosen.choice.solution, chosen.choice.ridge
            candidate = chosen.candidate
            why, trials = chosen.why, [trial.to_dict() for trial in chosen.trials]
        else:  # without copies of all weights
            ridge = setup.config.given_ridge or 0.0
            sweep = self._sweep(setup.curvature, number, k, w0, measured)
            outcome = sweep.run(candidate.apply(setup.policy.formulation), ridge)
            kept, choice_loss, why, trials = outcome.kept, None, "", []
            self._take_from_first(kept)
        row = StageRow(
            stage=number,
            sparsity=sparsity,
            kept=k,
            ridge=ridge if setup.method.takes_ridge else None,
            objective=None,
            loss=measured.loss,
            held_out_loss=None,
            iterations=outcome.iterations,
            converged=outcome.converged,
            jitter=outcome.jitter,
            gradient_seconds=measured.seconds,
            solve_seconds=0.0,
            candidate=candidate,
            choice_loss=choice_loss,
            sample_gradients=measured.sample_gradients,
            why=why,
            candidates=trials,
        )
        return row, kept

    def _search(self, number: int, k: int, w0: Tensor, measured: SweepStatistics) -> StageChoice:
        """Choose a candidate; after the last choice, solve it with the samples that chose it, too.

        The samples and the gradients of the search are freed before the last sweep.
        """
        setup = self._setup
        plain = setup.problem(setup.without_curvature(w0), w0, k)

        def problem(source: CurvatureSource) -> SweptProblem:
            sweep = self._sweep(source, number, k, w0, measured)
            return SweptProblem(plain, sweep, setup.weights)

        chosen = self._choose(problem(setup.curvature), k, number)
        if setup.final_curvature is None or number < len(setup.config.plan()):
            return chosen
        formulation = chosen.candidate.apply(setup.policy.formulation)
        solution = problem(setup.final_curvature).solve(formulation, chosen.choice.ridge)
        return self._from_first(replace(chosen, choice=replace(chosen.choice, solution=solution)))

    @cached_property
    def _sections(self) -> Sections:
        """The sections of the network, found before the first stage."""
        setup = self._setup
        layers = measurable_layers(setup.model, setup.weights)
        assert setup.sample is not None  # the run reads samples
        return find_sections(setup.model, layers, setup.sample.to(setup.weights.device))

    def _sweep(
        self, source: CurvatureSource, number: int, k: int, w0: Tensor, measured: SweepStatistics
    ) -> Sweep:
        """Compute the gradients of a stage, read its samples, and return its sweep.

        Args:
            source: computes the gradients, for methods that use them, and has the samples.
            number: the number of the stage.
            k: the weights to keep.
            w0: the current weights, (p,).
            measured: counts the time and the gradients.
        """
        setup, gradients = self._setup, None
        if setup.method.adds_inputs:
            setup.forecast.begin("gradients")
            with measured.timing():
                gradients = source.at(w0)
            measured.loss = gradients.loss
            measured.sample_gradients += gradients.sample_gradients
        setup.forecast.begin("reading samples")
        began, most = time.perf_counter(), setup.final_curvature or source
        sweeps = 1 if source is setup.final_curvature else self._sweeps
        assert setup.sample is not None
        stream, device = source.sampled.stream, setup.weights.device
        at_once = samples_at_once(stream.at_once(), self._sections, device)
        samples, dense = store_samples(
            stream.pieces(source.sampled.samples, at_once),
            self._sections,
            self._axes,
            samples=most.sampled.samples,
            sample=setup.sample,
            budget=setup.config.memory_bytes,
            device=device,
            dense=source.dense_outputs,
            rows=0 if gradients is None else gradients.matrix.n,
        )

        def report(activity: str, done: float) -> None:
            setup.forecast.begin(activity)
            if done:
                setup.forecast.count_share(min(done / sweeps, 1.0), began)
                setup.forecast.announce(*setup.describe(len(setup.config.plan())))

        solver = LayerSolver(setup.method, setup.supports, self._axes, gradients)
        names = [weight.name for weight in setup.weights]
        counts = dict(zip(names, setup.supports.layer_counts(k), strict=True))
        return Sweep(
            self._sections,
            setup.weights,
            samples,
            solver,
            counts,
            report,
            number,
            measured,
            dense,
        )

    @property
    def _sweeps(self) -> int:
        """The sweeps of a search, about."""
        ridges = RIDGES if self._setup.config.given_ridge is None else 1
        return len(self._setup.space.all()) - 1 + ridges

    def _take_from_first(self, kept: Tensor) -> None:
        """Give all ranks the weights of rank 0, and those that it keeps, (p,) bool."""
        setup = self._setup
        if setup.ranks.size > 1:
            w = setup.weights.vector()
            copy_from_first(setup.ranks, [w, kept])
            setup.weights.assign(w)
