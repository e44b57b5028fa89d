"""A small network with all that is delicate, images for it, and a plain training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from chita.gradual import GradualPruner
from chita.model.weights import Weights
from chita.pruning.config import kept_weights
from tests.support.pruning import Pairs, seeded

PRUNABLE = 306
CALIBRATION: dict[str, Any] = {"samples": 12, "batch": 2, "ridge": 0.01}

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(
        p, lr=0.05, momentum=0.9, weight_decay=1e-2, nesterov=True, foreach=False
    ),
    "sgd-foreach": lambda p: torch.optim.SGD(
        p, lr=0.05, momentum=0.9, weight_decay=1e-2, foreach=True
    ),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
}


class Network(nn.Module):
    """Convolutions with batch norm, two layers with one weight, dropout and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.bn(self.conv1(x)).tanh()).tanh().mean((2, 3))  # no unit is ever dead
        logits: Tensor = self.fc(self.drop(self.second(self.first(x).tanh()).tanh()))
        return logits


def network() -> nn.Module:
    return seeded(Network)


def images(samples: int = 48, size: int = 8) -> Pairs:
    """Batches of images, and the third of an image that is brightest."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(samples, 1, 8, 9, generator=draw)
    t = torch.stack([part.sum((1, 2, 3)) for part in x.split(3, dim=3)], 1).argmax(1)
    return list(zip(x.split(size), t.split(size), strict=True))


def train(model: nn.Module, optimizer: Optimizer, each: Callable[[], None] = lambda: None) -> None:
    """One epoch; `each` is called after each step."""
    for x, t in images():
        optimizer.zero_grad()
        functional.cross_entropy(model(x), t).backward()
        optimizer.step()
        each()


def assert_sparse(pruner: GradualPruner, model: nn.Module, sparsity: float) -> None:
    """The weights of `model` are zero where the mask says so, and so many as there should be."""
    w, weights = Weights(model).vector(), pruner.weights
    assert weights.size == PRUNABLE
    assert int((w == 0).sum()) == PRUNABLE - kept_weights(PRUNABLE, sparsity)
    kept = torch.cat([mask.flatten() for mask in pruner.masks.values()])
    assert torch.equal(w != 0, kept)
