"""What a stage knows of the loss around its weights: A at w0, or what stands for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from chita.curvature.fisher import gradient_matrix
from chita.curvature.layer_inputs import layer_inputs
from chita.methods.l_obs import LayerInputs
from chita.model.weights import Weights
from chita.pruning.auto.candidates import CandidateSpace
from chita.pruning.calibration import Calibration
from chita.pruning.policy import StagePolicy
from chita.pruning.storage import SOLVES, check_store, fitting_memory, pick_store
from chita.pruning.supports import Supports
from chita.solver.division import Division
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.held import HeldMatrix
from chita.solver.matrix.shared import SharedTarget
from chita.solver.matrix.target import Store


@dataclass(frozen=True)
class Around:
    """What is known around w0.

    Attributes:
        matrix: A, or this rank's columns of it; without curvature, a matrix of no rows.
        loss: the mean calibration loss there, if it was computed.
        alpha: the scale of the first-order term, or c itself, (n,).
        sample_gradients: the samples whose gradients were computed for it, by all ranks.
    """

    matrix: GradientMatrix
    loss: float | None
    alpha: float | Tensor
    sample_gradients: int = 0


class Curvature:
    """The A of each stage of a run.

    Args:
        model: that is pruned.
        weights: of the model, p in all.
        calibration: the samples; each stage goes on where the one before has stopped.
        policy: the policy of the run.
        supports: that the run may have.
        division: of rows and columns among the ranks.
        space: the candidates that a stage may try.

    Raises:
        ChitaError: there is too little memory, or a storage that the method cannot read.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Weights,
        calibration: Calibration,
        policy: StagePolicy,
        supports: Supports,
        division: Division,
        space: CandidateSpace,
    ) -> None:
        self._model, self._weights, self._calibration = model, weights, calibration
        self._division, self._kind = division, policy.config.resolve_method().curvature
        self._distils = policy.config.loss is not None
        self._store = _choose_store(policy, supports, division, space, weights, calibration.rows)

    def at(self, w0: Tensor) -> Around:
        """A at the weights w0, (p,), which the model has."""
        alpha = 1 / self._calibration.batch
        if self._kind == "none":
            dtype = torch.promote_types(w0.dtype, torch.float32)
            return Around(HeldMatrix(w0.new_empty((len(w0), 0), dtype=dtype)), None, alpha)
        if self._kind == "inputs":
            data = self._calibration
            samples = data.rows * data.batch
            seen = layer_inputs(
                self._model, self._weights, data.stream, samples=samples, loss=data.loss
            )
            return Around(LayerInputs(seen.moments, w0), seen.loss, alpha)
        matrix, losses = self._gradients()
        samples = self._calibration.rows * self._calibration.batch
        if self._distils:  # the rows of a distilled network bring c with them
            return Around(matrix, None, losses, samples)
        return Around(matrix, float(losses.double().mean()), alpha, samples)

    def _gradients(self) -> tuple[GradientMatrix, Tensor]:
        """A and the loss of each row, (n,), of which this rank computes its share."""
        data, ranks = self._calibration, self._division.ranks
        rows = self._division.rows(data.rows)
        data.stream.skip(sum(rows[: ranks.rank]) * data.batch)
        found = gradient_matrix(
            self._model,
            self._weights,
            data.stream,
            rows=rows[ranks.rank],
            batch=data.batch,
            loss=data.row_loss,
            store=self._store,
        )
        data.stream.skip(sum(rows[ranks.rank + 1 :]) * data.batch)
        return found.matrix, ranks.gather(found.losses)


def _choose_store(
    policy: StagePolicy,
    supports: Supports,
    division: Division,
    space: CandidateSpace,
    weights: Weights,
    n: int,
) -> Store:
    """Return where A is stored: shared by ranks, or within the budget of a single rank."""
    config, device = policy.config, weights.device
    method, layout, ranks = config.resolve_method(), division.layout, division.ranks
    if policy.adapts_memory and ranks.size == 1:
        config = replace(config, memory=fitting_memory(config, weights.size, n, device))
    check_store(config, method, layout, n=n, device=device, ranks=ranks)
    if ranks.size > 1:
        return partial(SharedTarget, ranks=ranks, bounds=division.bounds, counts=division.rows(n))
    # The search for a floor may end anywhere above the dense network.
    lowest = 0.0 if config.floor is not None else min(config.plan())
    kept = supports.kept(config.sparsity), supports.kept(lowest)
    return pick_store(
        config,
        method,
        layout,
        formulations=[candidate.apply(policy.formulation) for candidate in space.all()],
        solves=1 if policy.held_out_for is None else SOLVES,
        n=n,
        kept=kept,
        device=device,
    )
