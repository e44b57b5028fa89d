"""SNFS: sparse networks from scratch by sparse momentum (Dettmers and Zettlemoyer, 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chita.gradual.rivals.dense_layers import bounded_counts, bounds
from chita.gradual.rivals.masked import Masked
from chita.gradual.rivals.rigl import drop, grow
from chita.gradual.sparsifier import TrainingPlan
from chita.model.weights import Patterns
from chita.solver.constraints.layer_counts import share_out

SMOOTHING = 0.9  # the decay of the momentum
LEAST = 1e-12  # the momentum of a layer that has none yet


class SNFS(Masked):
    """Drop the smallest weights of each layer after each epoch, and grow others by momentum.

    Layers whose weights have a larger mean momentum get more of the freed weights; within a layer,
    the missing weights with the largest momentum grow. Momentum is the smoothed gradient of all
    weights; this class computes it itself, since the mask clips the optimizer's momentum.

    The first layer stays dense, and so should downsampling convolutions: leave these out with
    `include`. This is the partially dense setting of Dettmers and Zettlemoyer (section on ImageNet,
    after Mostafa and Wang); their other one has no dense layer. All other layers start equally
    sparse, the last one included.

    Args:
        model: the model to train, from random weights.
        optimizer: its optimizer.
        plan: the training plan.
        include: glob pattern(s) of the prunable parameters.
        share: the share of each layer's weights dropped at first; it falls to zero on a cosine.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: TrainingPlan,
        *,
        include: Patterns = None,
        share: float = 0.5,
    ) -> None:
        super().__init__(model, optimizer, plan, include=include)
        self._share = share
        self._momentum = [torch.zeros_like(magnitude) for magnitude in self.magnitudes()]
        least = bounds(self.shapes, self.k)
        self._dense = [count == size for count, size in zip(least, self.weights.sizes, strict=True)]
        self.keep_random(bounded_counts(self.weights.sizes, self.k, least))

    def share_at(self, epoch: int) -> float:
        """Return the share of the weights dropped before an epoch."""
        return self._share / 2 * (1 + math.cos(math.pi * epoch / self._plan.epochs))

    def begin_epoch(self, epoch: int, batches: Iterable[Any]) -> None:
        if epoch == 0:  # momentum is not available yet
            return
        kept, magnitudes = self.kept, self.magnitudes()
        sparse = [layer for layer, dense in enumerate(self._dense) if not dense]
        masks = regrown(
            [kept[layer] for layer in sparse],
            [magnitudes[layer] for layer in sparse],
            [self._momentum[layer].abs() for layer in sparse],
            share=self.share_at(epoch),
        )
        for layer, mask in zip(sparse, masks, strict=True):
            kept[layer] = mask
        self.kept = kept

    def after_step(self) -> None:
        super().after_step()
        gradients = self.gradients()
        torch._foreach_lerp_(self._momentum, gradients, 1 - SMOOTHING)
        if self._step % self._plan.steps_per_epoch == 0:
            # The momentum of a dead unit decays, but takes a thousand steps to reach zero.
            for momentum, gradient in zip(self._momentum, gradients, strict=True):
                momentum.masked_fill_(gradient == 0, 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "momentum": self._momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        torch._foreach_copy_(self._momentum, state["momentum"])


def regrown(
    kept: list[Tensor], magnitudes: list[Tensor], momentum: list[Tensor], *, share: float
) -> list[Tensor]:
    """Drop the smallest weights of each layer, and grow as many in total.

    A kept weight that is exactly zero has had no gradient since it grew: its unit is dead. All such
    weights are dropped, and do not grow again while others can.

    Args:
        kept: a mask (s,) for each layer.
        magnitudes: |w|, (s,) for each layer.
        momentum: its magnitude, (s,) for each layer.
        share: the share of each layer's weights that is dropped.
    """
    stuck = [mask & (w == 0) for mask, w in zip(kept, magnitudes, strict=True)]
    momentum = [m.masked_fill(mask, 0.0) for m, mask in zip(momentum, stuck, strict=True)]
    counts = [int(mask.sum()) for mask in kept]
    dropped = [
        max(int(share * count), int(mask.sum())) for count, mask in zip(counts, stuck, strict=True)
    ]
    means = [
        max(float((m * mask).sum()) / max(count, 1), LEAST)
        for m, mask, count in zip(momentum, kept, counts, strict=True)
    ]
    left = [drop(*layer) for layer in zip(kept, magnitudes, dropped, strict=True)]
    # A weight of a dead unit would stay at zero: others grow instead, if there are any.
    alive = [int((~mask & (m > 0)).sum()) for mask, m in zip(left, momentum, strict=True)]
    room = alive if sum(alive) >= sum(dropped) else [int((~k).sum()) for k in left]
    grown = share_out(sum(dropped), means, room)
    return [grow(*layer) for layer in zip(left, momentum, grown, strict=True)]
