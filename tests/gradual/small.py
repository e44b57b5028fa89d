"""Small trainings: a part of the MNIST slice, and a network that draws at random as it trains."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from chita import data
from chita.data import ImageData, Splits
from chita.gradual import GradualRecipe, train_sparse
from chita.gradual.history import History

RECIPE = GradualRecipe(
    epochs=5,
    batch_size=50,
    learning_rate=0.05,
    augment="pad-crop-flip",
    label_smoothing=0.1,
    pruning_steps=3,
    pruning_interval=0.25,
    methods={name: {"samples": 20, "batch": 2} for name in ("chita-bso", "woodfisher", "m-fac")},
)


def small_splits(train: int = 220, test: int = 100) -> Splits:
    def part(whole: Any, count: int) -> ImageData:
        assert isinstance(whole, ImageData)
        return replace(whole, images=whole.images[:count], labels=whole.labels[:count])

    whole = data.load("mnist-slice")
    return Splits(part(whole.train, train), part(whole.test, test))


def small_network(seed: int = 0) -> nn.Module:
    """Convolutions, batch norm and dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(216, 10),
        )


def linear_network(seed: int = 0) -> nn.Module:
    """Nothing that looks at a batch as a whole, nor draws."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.ReLU(), nn.Linear(12, 10))


def train(model: nn.Module, **changes: Any) -> History:
    """`train_sparse` on the small things, but for the changes."""
    arguments: dict[str, Any] = {"method": "chita-bso", "sparsity": 0.8, "recipe": RECIPE}
    arguments |= changes
    splits = arguments.pop("data", None) or small_splits()
    return train_sparse(model, splits, arguments.pop("recipe"), **arguments)


def same(one: nn.Module, other: nn.Module) -> bool:
    """Equal to the last bit, buffers included."""
    tensors = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in tensors)
