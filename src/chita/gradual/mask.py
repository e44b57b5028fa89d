"""The mask: pruned weights stay zero whatever the optimizer does."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from chita.model.weights import Weights


class Mask:
    """Which weights are kept; the others are put back to zero after each step of the optimizer.

    So are the optimizer's averages of their gradients: a weight that comes back later starts
    without momentum. The model itself is left alone: no wrapped modules, no renamed keys.

    Args:
        weights: the prunable weights, p in all.
        optimizer: that steps them.
    """

    def __init__(self, weights: Weights, optimizer: Optimizer) -> None:
        self._parameters: list[Tensor] = [weight.parameter for weight in weights]
        self._factors = [torch.ones_like(parameter) for parameter in self._parameters]
        self._optimizer = optimizer
        self._hook = optimizer.register_step_post_hook(lambda *_: self.apply())

    @property
    def kept(self) -> Tensor:
        """(p,) bool, in the order of the flat vector."""
        return torch.cat([factor.flatten() for factor in self._factors]) != 0

    @kept.setter
    def kept(self, kept: Tensor) -> None:
        sizes = [factor.numel() for factor in self._factors]
        for factor, part in zip(self._factors, torch.split(kept, sizes), strict=True):
            factor.copy_(part.view_as(factor))
        self.apply()

    @torch.no_grad()
    def apply(self) -> None:
        """Zero the pruned weights and what the optimizer remembers of them."""
        torch._foreach_mul_(self._parameters, self._factors)
        averages: list[Tensor] = []
        factors: list[Tensor] = []
        for parameter, factor in zip(self._parameters, self._factors, strict=True):
            for value in self._optimizer.state.get(parameter, {}).values():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    averages.append(value)
                    factors.append(factor)
        if averages:
            torch._foreach_mul_(averages, factors)

    def release(self) -> None:
        """Let go of the optimizer: from now on nothing keeps the weights at zero."""
        self._hook.remove()
        with torch.no_grad():  # factors make -0.0 of negative weights: a packed file stores those
            torch._foreach_add_(self._parameters, 0.0)
