"""DNW: discovering neural wirings (Wortsman, Farhadi and Rastegari, 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chita.gradual.rivals.dense_layers import bounded_counts, bounds
from chita.gradual.sparsifier import Sparsifier, TrainingPlan
from chita.model.weights import Patterns, Weights
from chita.pruning.config import kept_weights
from chita.solver.constraints.layer_counts import top_k_mask


class DNW(Sparsifier):
    """Use the largest weights of each layer in the forward pass, and train all of them.

    A weight outside the network moves by the gradient that it would have inside (straight-through
    estimator), and joins the network when it is large enough.

    The first layer is dense and all others, the last one included, are equally sparse. This is the
    better of the two settings in Wortsman et al. (section on training sparse neural networks:
    "First Layer Dense" has 75.0 % for ResNet50 with a tenth of the weights, "All Layers Sparse"
    74.0 %).

    Args:
        model: the model to train, from random weights.
        optimizer: its optimizer.
        plan: the training plan.
        include: glob pattern(s) of the prunable parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: TrainingPlan,
        *,
        include: Patterns = None,
    ) -> None:
        self.weights = Weights(model, include)
        k = kept_weights(self.weights.size, plan.sparsity)
        least = bounds([weight.parameter.shape for weight in self.weights], k)
        self._counts = bounded_counts(self.weights.sizes, k, least)

    def effective(self) -> dict[str, Tensor]:
        """Return the largest weights, zeros elsewhere; the gradient passes straight through."""
        return {
            weight.name: weight.parameter + (sparse - weight.parameter).detach()
            for weight, sparse in zip(self.weights, self._sparse(), strict=True)
        }

    @torch.no_grad()
    def finalize(self) -> None:
        for weight, sparse in zip(self.weights, self._sparse(), strict=True):
            weight.parameter.copy_(sparse)

    def state_dict(self) -> dict[str, Any]:
        return {}  # the weights are the whole state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def _sparse(self) -> list[Tensor]:
        parameters = [weight.parameter.detach() for weight in self.weights]
        layers = zip(parameters, self._counts, strict=True)
        return [w * top_k_mask(w.abs(), count) for w, count in layers]
