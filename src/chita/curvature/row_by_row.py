"""One row of A by plain autograd: always right, and the truth the fast way is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from chita.errors import ChitaError
from chita.model.batch import Batch
from chita.model.losses import Loss, batch_loss
from chita.model.weights import Weight
from chita.solver.matrix.target import Place


@dataclass(frozen=True)
class Row:
    """One row of A, or what some of the weights have in it.

    Attributes:
        loss: of the mini-batch.
        weights: those asked for.
        gradients: one for each; None where the weight has no part in the loss.
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
    """The gradient of the loss of `batch` alone by some of the prunable weights."""
    value = batch_loss(model, batch, loss)
    if not value.requires_grad:
        raise ChitaError(
            "the loss depends on no prunable weight: is it, or the model's output, detached?"
        )
    gradients = dense_gradients(value, [weight.parameter for weight in weights])
    return Row(value.detach(), weights, gradients)


def dense_gradients(
    value: Tensor, inputs: Sequence[Tensor | GradientEdge]
) -> tuple[Tensor | None, ...]:
    """Differentiate the scalar `value` by each input; None where it does not depend on one.

    Embeddings with sparse=True give sparse gradients, which have no reshape: make them dense.
    """
    given: Any = inputs  # torch takes both kinds together; its annotations do not say so
    found = torch.autograd.grad(value, given, allow_unused=True)
    return tuple(None if gradient is None else gradient.to_dense() for gradient in found)
