"""Dense training: the reference that sparse trainings of the same length are compared with."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from chita.errors import ChitaError
from chita.gradual.sparsifier import Sparsifier, TrainingPlan
from chita.model.weights import Patterns, Weights


class DenseTraining(Sparsifier):
    """Keep all weights: training is the same as without a sparsifier.

    Args:
        model: the model to train.
        optimizer: its optimizer.
        plan: the training plan; its sparsity must be 0.
        include: glob pattern(s) of the parameters that count as prunable.

    Raises:
        ChitaError: the sparsity of the plan is not 0.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: TrainingPlan,
        *,
        include: Patterns = None,
    ) -> None:
        if plan.sparsity != 0:
            raise ChitaError(
                f"sparsity must be 0 for the method 'dense', which prunes nothing, got "
                f"{plan.sparsity}"
            )
        self.weights = Weights(model, include)

    def finalize(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
