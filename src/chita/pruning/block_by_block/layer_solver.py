"""The problem of a single layer, given the second moments of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from chita.curvature.block_moments import Moments
from chita.curvature.both import with_inputs
from chita.curvature.source import LocalModel, no_rows
from chita.errors import ChitaError
from chita.methods import Method
from chita.model.layers import Axes
from chita.model.weights import Weight
from chita.pruning.stage_problem import Formulation, Shape, StageProblem
from chita.pruning.supports import Supports
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.layer_wise.dense_outputs import nearer_to_dense
from chita.solver.matrix.in_memory import HeldMatrix
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
        gradients: the gradients of all layers, for methods that add them to the inputs.
    """

    def __init__(
        self,
        method: Method,
        supports: Supports,
        axes: Mapping[str, Axes],
        gradients: LocalModel | None = None,
    ) -> None:
        self._method, self._supports, self._axes = method, supports, axes
        self._gradients = gradients

    @torch.no_grad()
    def prune(
        self, weight: Weight, moments: Moments, k: int, formulation: Formulation, ridge: float
    ) -> tuple[Solution, Tensor]:
        """Solve a layer, and give it the new weights.

        Args:
            weight: the weight of the layer.
            moments: the moments of its inputs.
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
        w0 = _outputs_first(parameter.detach().flatten(), axes)
        local = self._local_model(weight, moments.inputs, w0, formulation.layer_share)
        if moments.products is not None and formulation.layer_share:
            nearer = nearer_to_dense(w0, moments.inputs, moments.products, ridge)
            local, formulation = _moved(local, formulation, nearer - w0)
            w0 = nearer
        solution = self._problem(w0, local, k, axes).solve(formulation, ridge)
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

    def _local_model(self, weight: Weight, moment: Tensor, w0: Tensor, share: float) -> LocalModel:
        """Return the local model of a layer, with a share of its inputs if there are gradients."""
        if self._gradients is None:
            return LocalModel(no_rows(w0), moments=(moment,))
        columns = self._gradients.matrix.read(weight.start, weight.stop)
        own = replace(
            self._gradients, matrix=HeldMatrix(_outputs_first(columns, self._axes[weight.name]))
        )
        return with_inputs(own, moment, w0, share)

    def _problem(self, w0: Tensor, local: LocalModel, k: int, axes: Axes) -> StageProblem:
        groups, inputs_before, outputs, inputs_after, kernel = axes
        axes = Axes(groups, 1, outputs, inputs_before * inputs_after, kernel)
        return StageProblem(
            local,
            w0,
            k,
            constraint=self._supports.in_layer(axes),
            shape=Shape((axes,)),
            division=Division(ALONE, Layout((len(w0),))),
            algorithm=self._method.algorithm,
        )


def _moved(
    local: LocalModel, formulation: Formulation, change: Tensor
) -> tuple[LocalModel, Formulation]:
    """Return the same model of the loss around other weights: A (w - w0) + c does not change."""
    if local.matrix.n == 0:
        return local, formulation
    before = local.alpha if formulation.first_order else 0.0
    moved = replace(local, alpha=local.matrix.forward(change) + before)
    return moved, replace(formulation, first_order=True)


def _outputs_first(stored: Tensor, axes: Axes) -> Tensor:
    """Return the entries of a weight, or the columns of A, with the outputs first.

    The shape is (size of the layer,), or (size of the layer, n).
    """
    further = stored.shape[1:]
    return stored.reshape(*axes, *further).transpose(1, 2).reshape(-1, *further)


def _as_stored(vector: Tensor, axes: Axes) -> Tensor:
    """Undo `_outputs_first` on a vector, (size of the layer,)."""
    groups, inputs_before, outputs, inputs_after, kernel = axes
    parts = vector.view(groups, outputs, inputs_before, inputs_after, kernel)
    return parts.transpose(1, 2).reshape(-1)
