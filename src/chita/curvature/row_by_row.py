"""Gradients by plain autograd: one row of A, and the weights that no gradient reaches."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from chita.errors import ChitaError
from chita.model.batch import Batch
from chita.model.forward import differentiable, evaluating
from chita.model.losses import Loss, batch_loss
from chita.model.weights import Weight, Weights
from chita.solver.matrix.target import Place

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One row of A, or its entries for some of the weights.

    Attributes:
        loss: the loss of the mini-batch, a scalar.
        weights: the weights whose gradients were computed.
        gradients: one for each weight; None if the loss does not depend on it.
    """

    loss: Tensor
    weights: Sequence[Weight]
    gradients: tuple[Tensor | None, ...]

    def write(self, place: Place) -> None:
        """Write the gradients into the place of one row."""
        for weight, gradient in zip(self.weights, self.gradients, strict=True):
            if gradient is None:
                place.clear(weight.start, weight.stop)
            else:
                place.put(weight.start, gradient.reshape(-1, 1))


def plain_row(model: nn.Module, weights: Sequence[Weight], batch: Batch, loss: Loss | None) -> Row:
    """Differentiate the loss of one mini-batch by some of the prunable weights."""
    value = batch_loss(model, batch, loss)
    if not value.requires_grad:
        raise ChitaError(
            "the loss does not depend on the prunable weights: is the loss, or the output of the "
            "model, detached?"
        )
    gradients = dense_gradients(value, [weight.parameter for weight in weights])
    return Row(value.detach(), weights, gradients)


def dense_gradients(
    value: Tensor, inputs: Sequence[Tensor | GradientEdge]
) -> tuple[Tensor | None, ...]:
    """Differentiate the scalar `value` by each input; None where it does not depend on one.

    Embeddings with sparse=True have sparse gradients, which cannot be reshaped: make them dense.
    """
    given: Any = inputs  # torch accepts both kinds; its annotations do not
    found = torch.autograd.grad(value, given, allow_unused=True)
    return tuple(None if gradient is None else gradient.to_dense() for gradient in found)


def reached_weights(
    model: nn.Module, weights: Weights, batches: Iterable[Batch], loss: Loss | None, *, named: bool
) -> Weights:
    """Leave out the weights that no gradient reaches, and name them in a warning.

    Weights that the user selected by name stay. If the gradients of all weights are zero, the loss
    is flat around them and gradients cannot rank any: all stay.

    Args:
        model: any module.
        weights: its prunable weights.
        batches: calibration samples, as many as a stage uses, in mini-batches.
        loss: the loss of one mini-batch; None for the default.
        named: whether the user selected the weights by name.

    Raises:
        ChitaError: The loss does not depend on any of the weights, and they are not named.
    """
    missing = unreached(model, weights, batches, loss)
    if not missing:
        return weights
    names = ", ".join(missing)
    if named or (len(missing) == len(weights.entries) and any(missing.values())):
        logger.warning("no gradient of the loss reaches %s: pruning by magnitude alone", names)
        return weights
    if len(missing) == len(weights.entries):
        raise ChitaError(
            f"the loss does not depend on the prunable weights: no gradient reaches {names}; is "
            "the loss, or the output of the model, detached? method='magnitude' needs no gradients"
        )
    logger.warning(
        "no gradient of the loss reaches %s: they stay dense and do not count for the sparsity; "
        "name them in include, or use method='magnitude', to prune them by magnitude",
        names,
    )
    return weights.without(missing)


def unreached(
    model: nn.Module, weights: Weights, batches: Iterable[Batch], loss: Loss | None
) -> dict[str, bool]:
    """Find the weights whose gradients are zero, or do not exist, in all batches.

    The search ends with the first batch after which no such weight is left, normally the first one.

    Returns:
        For the name of each such weight, whether its gradients exist (and are zero).
    """
    missing = list(weights)
    flat: set[str] = set()
    none = torch.zeros((), dtype=torch.bool, device=weights.device)
    with evaluating(model), differentiable(weights):
        for batch in batches:
            found = plain_row(model, missing, batch.to(weights.device), loss).gradients
            reached = torch.stack([none if g is None else g.any() for g in found]).tolist()
            flat.update(w.name for w, g in zip(missing, found, strict=True) if g is not None)
            missing = [weight for weight, yes in zip(missing, reached, strict=True) if not yes]
            if not missing:
                break
    return {weight.name: weight.name in flat for weight in missing}
