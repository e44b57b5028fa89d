"""The problem of a stage whose solves are sweeps over the network, for the search for lambda."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.model.weights import Weights
from chita.pruning.block_by_block.layer_solver import UnsolvedError
from chita.pruning.block_by_block.sweep import Sweep
from chita.pruning.stage_problem import Formulation, StageProblem
from chita.solver.solve import Solution


@dataclass(frozen=True)
class SweptProblem:
    """A stage problem that is solved block by block.

    Attributes:
        plain: the same problem without curvature, over all weights.
        sweep: prunes the model.
        weights: the prunable weights of the model.
    """

    plain: StageProblem
    sweep: Sweep
    weights: Weights

    def solve(self, formulation: Formulation, ridge: float) -> Solution:
        """Prune the model by a sweep, return its weights, and restore those from before.

        The weights are NaN, and rank last, if lambda is too small for a layer.
        """
        w0, k = self.plain.w0, self.plain.k
        try:
            swept = self.sweep.run(formulation, ridge)
            w, support = self.weights.vector(), swept.kept.nonzero().squeeze(1)
        except UnsolvedError:
            first = torch.arange(k, device=w0.device)
            return Solution(torch.full_like(w0, math.nan), first, math.nan, 0, False, [], 0.0)
        finally:
            self.weights.assign(w0)
        return Solution(
            w, support, 0.0, swept.iterations, swept.converged, history=[], jitter=swept.jitter
        )

    def update(self, formulation: Formulation, ridge: float, solution: Solution) -> Solution:
        """Return the solution for another lambda, which changes the inputs of all blocks."""
        return self.solve(formulation, ridge)

    def still(self, solution: Solution) -> Tensor:
        """Return w0 on the support of a solution, zero elsewhere, (p,)."""
        return self.plain.still(solution)

    def mask(self, formulation: Formulation) -> tuple[Tensor, Tensor]:
        """Return P_k(w0) in the metric of a formulation, (p,), and its support, (k,)."""
        return self.plain.mask(formulation)

    def empties_layer(self, support: Tensor) -> bool:
        """Return whether a support keeps far less of some layer than of the whole network."""
        return self.plain.empties_layer(support)
