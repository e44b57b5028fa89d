"""RigL: rigging the lottery (Evci et al., 2020), sparse from the first step to the last."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chita.gradual.rivals.masked import Masked
from chita.gradual.sparsifier import TrainingPlan
from chita.model.weights import Patterns
from chita.solver.constraints.layer_counts import erk_counts, top_k_mask


class RigL(Masked):
    """Drop the smallest weights at intervals and grow those with the largest gradients.

    Training starts from random weights, with Erdős-Rényi-Kernel counts for the layers, which do not
    change. The share of exchanged weights falls to zero on a cosine.

    Erdős-Rényi-Kernel applies to all layers, the first and the last included, as in Evci et al.
    (section 3, "Sparsity distribution"): it makes small layers denser than large ones. The first
    layer is dense in their uniform distribution, which the paper's table does not use, and in their
    network of 99 % sparsity.

    Args:
        model: the model to train, from random weights.
        optimizer: its optimizer.
        plan: the training plan.
        include: glob pattern(s) of the prunable parameters.
        every: Delta T, the steps between two exchanges.
        share: alpha, the share of the weights exchanged at first.
        until: T_end, the share of the training after which the mask stays as it is.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: TrainingPlan,
        *,
        include: Patterns = None,
        every: int = 100,
        share: float = 0.3,
        until: float = 0.75,
    ) -> None:
        super().__init__(model, optimizer, plan, include=include)
        self._every = every
        self._share = share
        self._end = until * plan.steps
        self.counts = erk_counts(self.shapes, self.k)
        self.keep_random(self.counts)

    def share_at(self, step: int) -> float:
        """Return the share exchanged after t steps, alpha / 2 (1 + cos(pi t / T_end))."""
        return self._share / 2 * (1 + math.cos(math.pi * step / self._end))

    def after_step(self) -> None:
        super().after_step()
        if self._step % self._every == 0 and self._step < self._end:
            share = self.share_at(self._step)
            layers = zip(self.kept, self.magnitudes(), self.gradients(), self.counts, strict=True)
            self.kept = [
                exchange(kept, magnitude, gradient.abs(), int(share * count))
                for kept, magnitude, gradient, count in layers
            ]


def exchange(kept: Tensor, magnitude: Tensor, growth_score: Tensor, count: int) -> Tensor:
    """Drop the `count` smallest kept weights from a mask and grow as many others.

    A dropped weight may grow again and then keeps its value; all others grow from zero.

    Args:
        kept: (s,) bool.
        magnitude: (s,) the magnitude of the weights; the smallest are dropped.
        growth_score: (s,) non-negative scores; the weights with the largest grow.
        count: the number of weights to exchange, at most the number of kept ones.
    """
    return grow(drop(kept, magnitude, count), growth_score, count)


def drop(kept: Tensor, magnitude: Tensor, count: int) -> Tensor:
    """Return the mask (s,) without the `count` smallest of its weights."""
    return kept & ~top_k_mask(torch.where(kept, -magnitude, -torch.inf), count)


def grow(kept: Tensor, growth_score: Tensor, count: int) -> Tensor:
    """Return the mask (s,) with `count` more weights, those with the largest scores."""
    return kept | top_k_mask(torch.where(kept, -torch.inf, growth_score), count)
