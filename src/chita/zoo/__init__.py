"""The paper's networks: what they are, what they learn from and which weights are pruned.

All give logits or log-probabilities, so cross-entropy is the loss of each: on MLPNet's
log-probabilities it is the negative log-likelihood.

The MLPNet in `assets` is the result of `chita train mlpnet --seed 0`, the recipe below on the
full training set of MNIST, with two threads; 97.00 % of MNIST's test set are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from chita.data.augment import pad_crop_flip
from chita.errors import ChitaError
from chita.train import Recipe
from chita.zoo.mlpnet import MLPNet
from chita.zoo.resnet20 import ResNet20

__all__ = ["NETWORKS", "Embedded", "MLPNet", "Network", "ResNet20", "get"]

_ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Embedded:
    """What ships with the package for a network: trained weights and a data set to use them on."""

    checkpoint: Path
    data: str


@dataclass(frozen=True)
class Network:
    """A network of the paper.

    Args:
        name: what users call it.
        build: makes one with untrained weights.
        data: the data set it was trained on.
        prunable: glob patterns of the parameters the paper prunes.
        recipe: how it is trained; its augmentation also serves to re-estimate batch norm.
        embedded: what ships with the package, if anything.
    """

    name: str
    build: Callable[[], nn.Module]
    data: str
    prunable: tuple[str, ...]
    recipe: Recipe
    embedded: Embedded | None = None


NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        Network(
            name="mlpnet",
            build=MLPNet,
            data="mnist",
            prunable=("fc?.weight",),
            recipe=Recipe(epochs=10, learning_rate=0.05, weight_decay=5e-4),
            embedded=Embedded(_ASSETS / "mlpnet_mnist.safetensors", "mnist-slice"),
        ),
        Network(
            name="resnet20",
            build=ResNet20,
            data="cifar10",
            # The paper leaves the convolutions of the shortcuts dense.
            prunable=("conv1.weight", "layer*.conv?.weight", "fc.weight"),
            recipe=Recipe(epochs=200, learning_rate=0.1, augment=pad_crop_flip),
        ),
    )
}


def get(name: str) -> Network:
    """The network of that name."""
    if name not in NETWORKS:
        raise ChitaError(f"network {name!r} is unknown; known are {', '.join(NETWORKS)}")
    return NETWORKS[name]
