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

from chita.data.preprocessing import Preprocessing, RandomResizedCrop, pad_crop_flip
from chita.errors import ChitaError
from chita.zoo.mlpnet import MLPNet
from chita.zoo.mobilenetv1 import MobileNetV1, MobileNetV1Folded
from chita.zoo.resnet20 import ResNet20
from chita.zoo.resnet50 import ResNet50
from chita.zoo.training import Recipe

__all__ = [
    "NETWORKS",
    "Embedded",
    "MLPNet",
    "MobileNetV1",
    "MobileNetV1Folded",
    "Network",
    "ResNet20",
    "ResNet50",
    "get",
]

_ASSETS = Path(__file__).parent / "assets"
_IMAGES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


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
        classes: how many it tells apart.
        preprocessing: how it wants pictures; None if its data come in the right size.
        batch_size: images in a batch whose size matters only for speed and memory.
    """

    name: str
    build: Callable[[], nn.Module]
    data: str
    prunable: tuple[str, ...]
    recipe: Recipe
    embedded: Embedded | None = None
    classes: int = 10
    preprocessing: Preprocessing | None = None
    batch_size: int = 1000

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        if self.preprocessing is None:
            return _IMAGES[self.data]
        return 3, self.preprocessing.size, self.preprocessing.size


def _imagenet(
    name: str,
    build: Callable[[], nn.Module],
    *,
    prunable: tuple[str, ...],
    weight_decay: float,
    preprocessing: Preprocessing,
) -> Network:
    recipe = Recipe(
        epochs=90,
        learning_rate=0.1,
        batch_size=256,
        weight_decay=weight_decay,
        augment=RandomResizedCrop(preprocessing.size),
    )
    return Network(
        name=name,
        build=build,
        data="imagenet",
        prunable=prunable,
        recipe=recipe,
        classes=1000,
        preprocessing=preprocessing,
        batch_size=64,
    )


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
        _imagenet(
            "mobilenetv1",
            MobileNetV1,
            prunable=("*conv.weight", "fc.weight"),
            weight_decay=4e-5,
            preprocessing=Preprocessing(),
        ),
        _imagenet(
            "mobilenetv1-folded",
            MobileNetV1Folded,
            prunable=("stem.weight", "blocks.*.weight", "fc.weight"),
            weight_decay=4e-5,
            # Pixels of 0 to 255 become (x - 128) / 128.
            preprocessing=Preprocessing(mean=(128 / 255,) * 3, std=(128 / 255,) * 3),
        ),
        _imagenet(
            "resnet50",
            ResNet50,
            prunable=("*conv?.weight", "*.downsample.0.weight", "fc.weight"),
            weight_decay=1e-4,
            preprocessing=Preprocessing(),
        ),
    )
}


def get(name: str) -> Network:
    """The network of that name."""
    if name not in NETWORKS:
        raise ChitaError(f"network {name!r} is unknown; known are {', '.join(NETWORKS)}")
    return NETWORKS[name]
