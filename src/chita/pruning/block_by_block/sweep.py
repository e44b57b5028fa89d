"""A sweep over the network: measure, prune and run one section after the other.

For each group of layers of a section: the second moments of its inputs, behind everything that is
pruned so far, and then the solve of each of its layers. After the last group, the section runs once
more with its pruned weights, and gives the inputs of the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from chita.curvature.block_moments import LayerInputLists, Moments, group_moments
from chita.errors import ChitaError
from chita.model.forward import evaluating
from chita.model.samples.batch import Batch
from chita.model.sections import Sections
from chita.model.weights import Weight, Weights
from chita.pruning.block_by_block.dense_run import DenseRun
from chita.pruning.block_by_block.layer_solver import LayerSolver, UnsolvedError
from chita.pruning.block_by_block.stage_samples import StageSamples
from chita.pruning.stage_problem import Formulation
from chita.solver.solve import Solution

Report = Callable[[str, float], None]  # what is done now, and how many sweeps are done


@dataclass
class Swept:
    """What a sweep has done so far.

    Attributes:
        kept: which weights are kept, (p,) bool.
        pruned: the number of weights in layers that are pruned already.
        iterations: the largest number of updates of a layer.
        converged: whether all layers converged.
        jitter: the largest jitter of a layer.
    """

    kept: Tensor
    pruned: int = 0
    iterations: int = 0
    converged: bool = True
    jitter: float = 0.0

    def add(self, weight: Weight, solution: Solution, kept: Tensor) -> None:
        """Add a solved layer, and which of its weights are kept, (size of the layer,) bool."""
        self.kept[weight.span] = kept
        self.pruned += len(kept)
        self.iterations = max(self.iterations, solution.iterations)
        self.converged = self.converged and solution.converged
        self.jitter = max(self.jitter, solution.jitter)


@dataclass
class SweepStatistics:
    """What has been measured for the sweeps of a stage so far.

    Attributes:
        seconds: the time of all gradients and forward passes.
        loss: the mean calibration loss before the stage; None without gradients.
        sample_gradients: the number of samples whose gradients were computed.
    """

    seconds: float = 0.0
    loss: float | None = None
    sample_gradients: int = 0

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Add the time of some work."""
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began


class Sweep:
    """Sweeps over the network with the same samples.

    Args:
        sections: the sections of the network.
        weights: its prunable weights, p in total.
        samples: the calibration samples of the stage.
        solver: solves a layer.
        counts: how many weights each layer keeps, by name.
        report: called as sweeps proceed.
        stage: the number of the stage, for messages.
        measured: counts the time of all forward passes.
        dense: runs the dense network beside the pruned one; None if no layer needs its inputs.
    """

    def __init__(
        self,
        sections: Sections,
        weights: Weights,
        samples: StageSamples,
        solver: LayerSolver,
        counts: Mapping[str, int],
        report: Report,
        stage: int,
        measured: SweepStatistics,
        dense: DenseRun | None,
    ) -> None:
        self._sections, self._weights, self._samples = sections, weights, samples
        self._solver, self._counts, self._report = solver, counts, report
        self._stage, self._measured, self._finished = stage, measured, 0
        self._by_name = {weight.name: weight for weight in weights}
        self._dense = dense

    @torch.no_grad()
    def run(self, formulation: Formulation, ridge: float) -> Swept:
        """Prune all layers of the model, which must have the weights from before the stage.

        Args:
            formulation: how the problems of the layers are solved.
            ridge: lambda.

        Raises:
            ChitaError: inputs or weights of a section are not finite, or a layer is never called;
                the message names the section. The sections before it are pruned.
        """
        sections, replay = self._sections, self._sections.replay
        swept = Swept(
            torch.zeros(self._weights.size, dtype=torch.bool, device=self._weights.device)
        )
        self._samples.restart()
        with evaluating(replay.model):
            for number in range(sections.last + 1):
                self._tell(number, swept)
                if self._dense is not None:
                    with self._measured.timing():
                        self._dense.begin(number, self._samples)
                layers = sections.layers(number)
                for group in sections.groups[number]:
                    with self._measured.timing():
                        moments = group_moments(replay, number, group, self._pieces(), layers)
                    self._solve(number, moments, swept, formulation, ridge)
                if number < sections.last:
                    with self._measured.timing():
                        self._samples.advance(replay, number)
        self._finished += 1
        return swept

    def _pieces(self) -> Iterator[tuple[Batch, Any, LayerInputLists | None]]:
        """Yield the samples, with what the present section needs of them."""
        for number, (batch, before) in enumerate(self._samples):
            theirs = None if self._dense is None else self._dense.inputs(number, batch)
            yield batch, before, theirs

    def _solve(
        self,
        section: int,
        moments: dict[str, Moments],
        swept: Swept,
        formulation: Formulation,
        ridge: float,
    ) -> None:
        """Prune the layers of a group, whose moments are given by the names of their weights."""
        for name, moment in moments.items():
            weight, k = self._by_name[name], self._counts[name]
            if not all(bool(x.isfinite().all()) for x in moment if x is not None):
                raise ChitaError(
                    f"{self._place(section)}: the inputs of {name!r} are not finite; the weights "
                    "of the model and the data must be finite"
                )
            try:
                swept.add(weight, *self._solver.prune(weight, moment, k, formulation, ridge))
            except UnsolvedError as error:
                raise UnsolvedError(f"{self._place(section)}: {error}") from error

    def _place(self, section: int) -> str:
        return f"stage {self._stage}, block {self._sections.names[section]!r}"

    def _tell(self, section: int, swept: Swept) -> None:
        number, last = section + 1, self._sections.last + 1
        done = self._finished + swept.pruned / self._weights.size
        self._report(f"block {number} of {last}", done)
