"""A pruned model, and a training loop that keeps its zeros or does not."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

import chita
from chita.model.masks import masks_of
from tests.support.pruning import points, same, tiny


def pruned(sparsity: float = 0.75) -> nn.Sequential:
    model = tiny()
    chita.prune(model, [], sparsity=sparsity, method="magnitude", progress=False)
    return model


def train(model: nn.Module, *optimizers: Optimizer, steps: int = 3) -> list[bool]:
    """Train on all points by closures; return whether the zeros were the same after each step."""
    inputs, labels = points(24)
    masks, held = masks_of(model), []

    def closure() -> Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad()
        dtype = next(model.parameters()).dtype
        loss = functional.cross_entropy(model(inputs.to(dtype)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.step(closure)  # type: ignore[arg-type]
        held.append(same(masks_of(model), masks))
    return held
