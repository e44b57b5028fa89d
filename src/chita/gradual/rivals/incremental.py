"""Incremental magnitude pruning: to prune, or not to prune (Zhu and Gupta, 2017)."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from chita.gradual.rivals.dense_layers import bounded_counts, bounds
from chita.gradual.rivals.masked import Masked
from chita.gradual.sparsifier import TrainingPlan
from chita.model.weights import Patterns
from chita.pruning.config import kept_weights
from chita.solver.constraints.layer_counts import top_k_mask


class Incremental(Masked):
    """Prune the smallest weights of each layer, with one sparsity for all layers.

    The sparsity rises on the cubic s_t = s (1 - (1 - t/T)^3) to the target s. A pruned weight is
    zero and therefore remains among the smallest.

    The first convolution and the depthwise ones stay dense, as in Zhu and Gupta's sparse MobileNets
    (section on MobileNets), which are the Incremental rows of the paper's table. All other layers,
    the last one included, have one sparsity.

    Args:
        model: the model to train.
        optimizer: its optimizer.
        plan: the training plan; the mask changes from its first pruning step to its last.
        include: glob pattern(s) of the prunable parameters.
        every: steps of the optimizer between two updates of the mask.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: TrainingPlan,
        *,
        include: Patterns = None,
        every: int = 100,
    ) -> None:
        super().__init__(model, optimizer, plan, include=include)
        self._every = every
        self._least = self.least()  # for the target, so that no layer gains weights later

    def least(self) -> list[int]:
        """Return the fewest weights that each layer keeps in the end."""
        return bounds(self.shapes, self.k, depthwise=True)

    def counts(self, k: int) -> list[int]:
        """Return the weights kept in each layer, k in total."""
        return bounded_counts(self.weights.sizes, k, self._least)

    def after_step(self) -> None:
        super().after_step()
        end = self._plan.last_step
        if self._step == end or (self._step < end and self._step % self._every == 0):
            self._prune(self._plan.sparsity_at(self._step))

    def finalize(self) -> None:
        self._prune(self._plan.sparsity)  # a training that ended early reaches the target, too
        super().finalize()

    def _prune(self, sparsity: float) -> None:
        counts = self.counts(kept_weights(self.weights.size, sparsity))
        self.kept = [top_k_mask(m, k) for m, k in zip(self.magnitudes(), counts, strict=True)]
