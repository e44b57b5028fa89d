"""The pruning problem of a network, on which any method can be run in one stage."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from chita.curvature.fisher import Fisher
from chita.curvature.source import CurvatureSource, LocalModel, SampledModel
from chita.errors import ChitaError
from chita.methods import Method
from chita.model.samples.stream import SampleStream
from chita.model.weights import Patterns, Weights
from chita.paper.networks import Subject
from chita.pruning.config import kept_weights
from chita.pruning.stage_problem import Formulation, Shape, StageProblem
from chita.pruning.storage import check_memory
from chita.solver.algorithm import Layout
from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.division import Division
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.ranks import ALONE
from chita.solver.solve import Solution


class NetworkProblem:
    """The local models of a network at its current weights.

    Args:
        model: the network.
        include: glob patterns of its prunable parameters.
        stream: returns the stream that a curvature source reads.
        samples: n, the rows of A.
        batch: m, the samples averaged into a row.

    Attributes:
        model: the network.
        weights: its prunable weights.
        w0: their values, (p,).
        gradients: the local model with A; the objective of every method is computed with it.
    """

    def __init__(
        self,
        model: nn.Module,
        include: Patterns,
        stream: Callable[[], SampleStream],
        *,
        samples: int,
        batch: int = 1,
    ) -> None:
        self.model, self.weights = model, Weights(model, include)
        self.w0 = self.weights.vector()
        self._shape = Shape.of(model, self.weights)
        self._stream, self._samples, self._batch = stream, samples, batch
        self._local: dict[type[CurvatureSource], LocalModel] = {}
        self.gradients = self.local(Fisher)

    def local(self, source: type[CurvatureSource]) -> LocalModel:
        """Return the local model that a source builds at w0; it is built once."""
        if source not in self._local:
            sampled = SampledModel(
                self.model, self.weights, self._stream(), self._samples, self._batch
            )
            self._local[source] = source(sampled).at(self.w0)
        return self._local[source]

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
        """Solve the problem by a method in one stage.

        A matrix stores its last Gram product; every solve starts with a matrix that has none, so
        that the times of two solves can be compared.

        Args:
            method: the method; its curvature source gives the local model.
            sparsity: the share of the weights to remove.
            lam: the ridge lambda.
            alpha: the scale of the first-order term.
            block_size: solve in blocks of at most this size (algorithm 6).
            options: the options of the algorithm; the default is that of the method.
            drop_dead: whether the weights of dead columns are removed first; the default is that
                of the method.

        Returns:
            The solution. Its objective is the one with A for all methods.
        """
        layout, options = Layout(self.weights.sizes, block_size), options or method.options
        check_memory(method, layout, self._samples, self.weights.device)
        local = self.local(method.curvature)
        problem = StageProblem(
            replace(local, matrix=HeldMatrix(local.matrix.whole()), alpha=alpha),
            self.w0,
            kept_weights(len(self.w0), sparsity),
            constraint=ANY_SUPPORT,
            shape=self._shape,
            division=Division(ALONE, layout),
            algorithm=method.algorithm,
            drop_dead=method.drops_dead if drop_dead is None else drop_dead,
        )
        solution = problem.solve(Formulation(options, block_size=block_size), lam)
        if not math.isfinite(solution.objective):
            raise ChitaError(
                f"{method.name} returned non-finite weights; lambda = {lam:g} is too small"
            )
        if local is self.gradients:
            return solution
        with_gradients = Problem.build(self.gradients.matrix, self.w0, lam=lam, alpha=alpha)
        point = with_gradients.at(solution.w, solution.support)
        return replace(solution, objective=point.objective)


def trained_problem(subject: Subject, seed: int, *, samples: int, batch: int = 1) -> NetworkProblem:
    """Return the problem of a trained network; every source reads the same samples."""
    return NetworkProblem(
        subject.model(seed),
        subject.network.prunable,
        lambda: SampleStream(subject.calibration(seed)),
        samples=samples,
        batch=batch,
    )
