"""The mask of the prunable weights, which changes during training, as one vector."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from chita.model.keep_masks import MaskHook
from chita.model.weights import Weights


class Mask(MaskHook):
    """A mask over the prunable weights that is applied after each optimizer step.

    It keeps all weights at first.

    Args:
        weights: the prunable weights, p in total.
        optimizer: the optimizer of these weights.
    """

    def __init__(self, weights: Weights, optimizer: Optimizer) -> None:
        parameters = [weight.parameter for weight in weights]
        masked = [(p, torch.ones_like(p, dtype=torch.bool)) for p in parameters]
        super().__init__(masked, [optimizer])

    @property
    def kept(self) -> Tensor:
        """The kept weights, (p,) bool, in the order of the flat vector."""
        return torch.cat([factor.flatten() for factor in self._factors]) != 0

    @kept.setter
    def kept(self, kept: Tensor) -> None:
        sizes = [factor.numel() for factor in self._factors]
        for factor, part in zip(self._factors, torch.split(kept, sizes), strict=True):
            factor.copy_(part.view_as(factor))
        self.apply()
