"""One row of A by plain autograd: always right, and the truth the fast way is held against."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chita.batches import Batch
from chita.errors import ChitaError
from chita.gradients.losses import Loss, batch_loss
from chita.weights import Weights


@dataclass(frozen=True)
class Row:
    """One row of A.

    Attributes:
        loss: of the mini-batch.
        gradients: one for each prunable weight; None where the weight has no part in the loss.
    """

    loss: Tensor
    gradients: tuple[Tensor | None, ...]

    def write(self, weights: Weights, column: Tensor) -> None:
        """Write the row into `column`, a vector of shape (p,)."""
        for weight, gradient in zip(weights, self.gradients, strict=True):
            column[weight.span] = 0 if gradient is None else gradient.reshape(-1)


def plain_row(model: nn.Module, weights: Weights, batch: Batch, loss: Loss | None) -> Row:
    """The gradient of the loss of `batch` alone."""
    value = batch_loss(model, batch, loss)
    if not value.requires_grad:
        raise ChitaError(
            "the loss depends on no prunable weight: is it, or the model's output, detached?"
        )
    parameters = [weight.parameter for weight in weights]
    return Row(value.detach(), torch.autograd.grad(value, parameters, allow_unused=True))
