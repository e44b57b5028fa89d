"""The problem of a single layer, given the second moments of its inputs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from chita.curvature.source import LocalModel, no_rows
from chita.errors import ChitaError
from chita.methods import Method
from chita.model.layers import Axes
from chita.model.weights import Weight
from chita.pruning.stage_problem import Formulation, Shape, StageProblem
from chita.pruning.supports import Supports
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.ranks import ALONE
from chita.solver.solve import Solution


class UnsolvedError(ChitaError):
    """A layer has no finite solution for some lambda; another lambda may have one."""


class LayerSolver:
    """Solves one layer after the other.

    Algorithms see the weights of a layer with the outputs first: (groups, outputs, inputs, kernel),
    as most layers store them. Those of layers that store the inputs first are transposed.

    Args:
        method: the method.
        supports: the supports that the run may have.
        axes: the axes of each prunable weight, by name.
    """

    def __init__(self, method: Method, supports: Supports, axes: Mapping[str, Axes]) -> None:
        self._method, self._supports, self._axes = method, supports, axes

    @torch.no_grad()
    def prune(
        self, weight: Weight, moment: Tensor, k: int, formulation: Formulation, ridge: float
    ) -> tuple[Solution, Tensor]:
        """Solve a layer, and give it the new weights.

        Args:
            weight: the weight of the layer.
            moment: the mean of x x^T over its inputs, (groups, i, i).
            k: the weights to keep.
            formulation: how the problem is solved.
            ridge: lambda.

        Returns:
            The solution, and which weights of the layer are kept, (size of the layer,) bool.

        Raises:
            UnsolvedError: the solution is not finite.
            ChitaError: the solution does not keep k weights.
        """
        axes, parameter = self._axes[weight.name], weight.parameter
        w0 = _outputs_first(parameter.detach(), axes)
        solution = self._problem(w0, moment, k, axes).solve(formulation, ridge)
        if (kept := len(solution.support)) != k:
            raise ChitaError(
                f"method {self._method.name!r} must keep {k} weights of {weight.name!r}, but keeps "
                f"{kept}"
            )
        w = solution.w.to(parameter.dtype)
        if not bool(w.isfinite().all()):
            raise UnsolvedError(
                f"the pruned weights of {weight.name!r} are not finite; try a larger ridge"
            )
        inside = torch.zeros(len(w), dtype=torch.bool, device=w.device)
        inside[solution.support] = True
        # Without -0.0, which a packed file would store.
        parameter.copy_((_as_stored(w, axes) + 0.0).view_as(parameter))
        return solution, _as_stored(inside, axes)

    def _problem(self, w0: Tensor, moment: Tensor, k: int, axes: Axes) -> StageProblem:
        groups, inputs_before, outputs, inputs_after, kernel = axes
        axes = Axes(groups, 1, outputs, inputs_before * inputs_after, kernel)
        return StageProblem(
            LocalModel(no_rows(w0), moments=(moment,)),
            w0,
            k,
            constraint=self._supports.in_layer(axes),
            shape=Shape((axes,)),
            division=Division(ALONE, Layout((len(w0),))),
            algorithm=self._method.algorithm,
        )


def _outputs_first(parameter: Tensor, axes: Axes) -> Tensor:
    """Return the entries of a weight with the outputs first, (size of the layer,)."""
    return parameter.reshape(axes).transpose(1, 2).reshape(-1)


def _as_stored(vector: Tensor, axes: Axes) -> Tensor:
    """Undo `_outputs_first` on a vector, (size of the layer,)."""
    groups, inputs_before, outputs, inputs_after, kernel = axes
    parts = vector.view(groups, outputs, inputs_before, inputs_after, kernel)
    return parts.transpose(1, 2).reshape(-1)
