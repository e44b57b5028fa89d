"""The problem that a network poses: A at its weights, on which any method can be run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from chita.curvature.fisher import gradient_matrix
from chita.curvature.layer_inputs import layer_inputs
from chita.errors import ChitaError
from chita.methods import Method
from chita.methods.l_obs import LayerInputs
from chita.model.stream import SampleStream
from chita.model.weights import Weights
from chita.paper.networks import Subject
from chita.pruning.config import kept_weights
from chita.pruning.storage import check_memory
from chita.solver.algorithm import Layout
from chita.solver.dead_columns import DeadColumns, column_sizes
from chita.solver.matrix.held import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import Solution


@dataclass(frozen=True)
class Posed:
    """A network, and A at its weights.

    Attributes:
        model: the network.
        weights: its prunable weights.
        stored: A as HeldMatrix stores it, (p, n).
        w0: the weights that A was taken at, (p,).
        moments: of each layer's inputs on the same samples, which L-OBS has in the place of A.
    """

    model: nn.Module
    weights: Weights
    stored: Tensor
    w0: Tensor
    moments: Sequence[Tensor] = ()

    @cached_property
    def dead(self) -> DeadColumns:
        """The dead columns of A."""
        nonzero = column_sizes(HeldMatrix(self.stored)).nonzero
        return DeadColumns.find(nonzero, self.weights.sizes, part=slice(None))

    @torch.no_grad()
    def solve(
        self,
        method: Method,
        *,
        sparsity: float,
        lam: float,
        alpha: float = 0.0,
        block_size: int | None = None,
        options: Options | None = None,
        drop_dead: bool | None = None,
    ) -> Solution:
        """What the method makes of the problem, in one stage; the objective is that on A for all.

        Dead columns are dropped if the method does so by default, or as `drop_dead` says. A matrix
        remembers its last Gram product; here each solve starts without such memories.
        """
        layout = Layout(self.weights.sizes, block_size)
        matrix = HeldMatrix(self.stored)
        check_memory(method, layout, matrix.n, self.weights.device)
        by_inputs = method.curvature == "inputs"
        seen = LayerInputs(self.moments, self.w0) if by_inputs else matrix
        drop = method.drops_dead if drop_dead is None else drop_dead
        dead = self.dead if drop else DeadColumns.none(matrix.p, matrix.device)
        solution = dead.solve(
            Problem.build(seen, self.w0, lam=lam, alpha=alpha),
            kept_weights(matrix.p, sparsity),
            method.algorithm,
            options=options or method.options,
            layout=layout,
        )
        if not math.isfinite(solution.objective):
            raise ChitaError(f"{method.name} gave no finite weights; lambda = {lam:g} is too small")
        if by_inputs:
            problem = Problem.build(matrix, self.w0, lam=lam, alpha=alpha)
            point = problem.at(solution.w, solution.support)
            solution = replace(solution, objective=point.objective)
        return solution


def pose(
    model: nn.Module, include: tuple[str, ...], stream: SampleStream, *, samples: int, batch: int
) -> Posed:
    """A of n = `samples` rows, each the mean gradient of the next m = `batch` of the stream."""
    weights = Weights(model, include)
    found = gradient_matrix(model, weights, stream, rows=samples, batch=batch)
    return Posed(model, weights, found.matrix.whole(), weights.vector())


def pose_subject(subject: Subject, seed: int, *, samples: int, batch: int = 1) -> Posed:
    """The problem that a trained network poses."""

    def stream() -> SampleStream:
        return SampleStream(subject.calibration(seed))

    include = subject.network.prunable
    posed = pose(subject.model(seed), include, stream(), samples=samples, batch=batch)
    seen = layer_inputs(posed.model, posed.weights, stream(), samples=samples * batch)
    return replace(posed, moments=seen.moments)
