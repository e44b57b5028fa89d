"""The mask, which keeps pruned weights at zero during training."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from chita.model.weights import Weights


class Mask:
    """A mask over the prunable weights that is applied after each optimizer step.

    The optimizer's averages for pruned weights are set to zero, too, so that a weight that grows
    back later starts without momentum. Modules are not wrapped and keys are not renamed.

    Args:
        weights: the prunable weights, p in total.
        optimizer: the optimizer of these weights.
    """

    def __init__(self, weights: Weights, optimizer: Optimizer) -> None:
        self._parameters: list[Tensor] = [weight.parameter for weight in weights]
        self._factors = [torch.ones_like(parameter) for parameter in self._parameters]
        self._optimizer = optimizer
        self._hook = optimizer.register_step_post_hook(lambda *_: self.apply())

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

    @torch.no_grad()
    def apply(self) -> None:
        """Set the pruned weights and the optimizer's averages for them to zero."""
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
        """Remove the optimizer hook; the mask is no longer applied."""
        self._hook.remove()
        with (
            torch.no_grad()
        ):  # factors turn negative weights into -0.0, which a packed file would store
            torch._foreach_add_(self._parameters, 0.0)
