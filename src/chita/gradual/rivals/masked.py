"""The base class of methods that train under a changing mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chita.errors import ChitaError
from chita.gradual.mask import Mask
from chita.gradual.sparsifier import Sparsifier, TrainingPlan
from chita.model.weights import Patterns, Weights
from chita.pruning.config import kept_weights
from chita.solver.constraints.layer_counts import top_k_mask


class Masked(Sparsifier):
    """A sparsifier that trains under a mask with a part for each layer.

    Args:
        model: the model to train.
        optimizer: its optimizer.
        plan: the training plan.
        include: glob pattern(s) of the prunable parameters, as in `chita.prune`.
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
        self.k = kept_weights(self.weights.size, plan.sparsity)
        self._plan = plan
        self._mask = Mask(self.weights, optimizer)
        self._step = 0

    @property
    def shapes(self) -> list[torch.Size]:
        """The shape of the weights of each layer."""
        return [weight.parameter.shape for weight in self.weights]

    @property
    def kept(self) -> list[Tensor]:
        """The flat bool mask of each layer."""
        return list(torch.split(self._mask.kept, list(self.weights.sizes)))

    @kept.setter
    def kept(self, kept: Sequence[Tensor]) -> None:
        self._mask.kept = torch.cat(list(kept))

    def magnitudes(self) -> list[Tensor]:
        """Return |w| of each layer, flat."""
        return [weight.parameter.detach().abs().flatten() for weight in self.weights]

    def gradients(self) -> list[Tensor]:
        """Return the gradient of each layer at the last step, flat, including pruned weights."""
        missing = [weight.name for weight in self.weights if weight.parameter.grad is None]
        if missing:
            raise ChitaError(
                f"{', '.join(missing)} have no gradients after a step, but growing weights needs "
                "them: leave these parameters out with include, or zero the gradients in place"
            )
        found = [g for w in self.weights if (g := w.parameter.grad) is not None]
        return [g.to_dense().flatten() for g in found]  # embeddings may have sparse gradients

    def keep_random(self, counts: Sequence[int]) -> None:
        """Start with a given number of random weights in each layer."""
        generator = torch.Generator().manual_seed(self._plan.seed)
        scores = [torch.rand(size, generator=generator) for size in self.weights.sizes]
        masks = [top_k_mask(s, count) for s, count in zip(scores, counts, strict=True)]
        self.kept = [mask.to(self.weights.device) for mask in masks]

    def after_step(self) -> None:
        self._step += 1

    def finalize(self) -> None:
        self._mask.apply()
        self._mask.release()

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step, "kept": self._mask.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._step = state["step"]
        self._mask.kept = state["kept"]
