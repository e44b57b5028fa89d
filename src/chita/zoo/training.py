"""The training recipes of the zoo: SGD with a cosine schedule of the learning rate."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from chita.data.dataset import Augmentation, Batches, Images
from chita.errors import ChitaError
from chita.model.forward import device_of, modes_restored

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """A training recipe; the learning rate falls to zero on a cosine schedule."""

    epochs: int
    learning_rate: float
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 1e-4
    augment: Augmentation | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ChitaError(f"epochs must be at least 1, got {self.epochs}")
        if not self.learning_rate > 0:
            raise ChitaError(f"learning_rate must be positive, got {self.learning_rate}")


def train(
    model: nn.Module,
    data: Images,
    recipe: Recipe,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train a model from fresh weights, in place.

    On a CPU, the same seed and the same number of threads give the same bits.

    Args:
        model: returns (B, classes) logits or log-probabilities; it is trained on its device.
        data: the training images.
        recipe: the recipe.
        seed: the seed of the initial weights, the order of the images and the augmentation.
        progress: called after each step with the steps done and the total.
    """
    initialise(model, torch.Generator(device_of(model)).manual_seed(seed))
    batches = Batches(
        data,
        recipe.batch_size,
        shuffle=True,
        augment=recipe.augment,
        seed=seed,
        device=device_of(model),
    )
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
    )
    steps = recipe.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    step = 0
    with modes_restored(model):
        model.train()
        for epoch in range(recipe.epochs):
            for inputs, targets in batches:
                loss = F.cross_entropy(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                step += 1
                if progress is not None:
                    progress(step, steps)
            if not loss.isfinite():
                raise ChitaError(
                    f"training diverged in epoch {epoch + 1}: the loss is {loss.item()}; try a "
                    f"learning_rate below {recipe.learning_rate}"
                )
            logger.info("epoch %d of %d: loss %.4f", epoch + 1, recipe.epochs, loss.item())


@torch.no_grad()
def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Draw He's normal weights for Linear and convolution layers, and reset batch norm."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, _ConvNd)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, _BatchNorm):
            module.reset_parameters()
