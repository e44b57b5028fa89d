"""STR: soft threshold weight reparametrisation for learnable sparsity (Kusupati et al., 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chita.gradual.sparsifier import Sparsifier, TrainingPlan
from chita.model.weights import Patterns, Weights
from chita.pruning.config import kept_weights
from chita.solver.constraints.constraint import hard_threshold

DECAY = 0.3  # the decay of s in a step, for each factor of e by which the density is too high
HALVINGS = 30  # steps of the bisection for the last factor


class SoftThreshold(Sparsifier):
    """Use sign(w) relu(|w| - sigmoid(s)) as weights, with one learned s per layer.

    Weight decay moves s from below towards 0 and thereby raises the thresholds: it determines the
    sparsity. The paper tries decays until the sparsity is about right. Here the decay of a step
    is in proportion to how far the sparsity is behind the cubic on the way to the target. In the
    end s is scaled once more, by a factor found by bisection, and the smallest of the weights that
    are left are removed until exactly k remain.

    Every layer learns a threshold, the first and the last included, as in Kusupati et al.: no layer
    is dense by rule.

    Args:
        model: the model to train.
        optimizer: its optimizer.
        plan: the training plan.
        include: glob pattern(s) of the prunable parameters.
        start: s of all layers before training.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: TrainingPlan,
        *,
        include: Patterns = None,
        start: float = -5.0,
    ) -> None:
        self.weights = Weights(model, include)
        self.s = nn.Parameter(
            torch.full((len(self.weights.entries),), start).to(self.weights.device)
        )
        self._k = kept_weights(self.weights.size, plan.sparsity)
        self._plan = plan
        self._step = 0
        sizes = self.weights.sizes
        self._layer_of = (
            torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(self.s.device)
        )

    def groups(self) -> list[dict[str, Any]]:
        return [{"params": [self.s], "weight_decay": 0.0}]

    def effective(self) -> dict[str, Tensor]:
        thresholds = self.s.sigmoid()
        return {
            weight.name: soft_threshold(weight.parameter, thresholds[layer])
            for layer, weight in enumerate(self.weights)
        }

    @torch.no_grad()
    def after_step(self) -> None:
        self._step += 1
        density = (self.weights.vector().abs() > self.s.sigmoid()[self._layer_of]).float().mean()
        surplus = (density / (1 - self._plan.sparsity_at(self._step))).log()
        self.s.mul_((-DECAY * surplus.clamp(min=0)).exp())

    @torch.no_grad()
    def finalize(self) -> None:
        self.s.mul_(self._factor_to_target())
        vector = torch.cat([w.flatten() for w in self.effective().values()])
        self.weights.assign(hard_threshold(vector, self._k)[0])

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step, "s": self.s.detach()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._step = state["step"]
        self.s.copy_(state["s"])

    @torch.no_grad()
    def _factor_to_target(self) -> float:
        """Return a factor for s such that k weights, or slightly more, exceed their thresholds."""
        magnitude, s = self.weights.vector().abs(), self.s.detach()[self._layer_of]
        low, high = 0.0, 2.0  # too few weights remain at the lower bound, enough at the upper one
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            enough = int((magnitude > (middle * s).sigmoid()).sum()) >= self._k
            low, high = (low, middle) if enough else (middle, high)
        return high


def soft_threshold(w: Tensor, threshold: Tensor) -> Tensor:
    """Return sign(w) relu(|w| - threshold)."""
    return w.sign() * (w.abs() - threshold).relu()
