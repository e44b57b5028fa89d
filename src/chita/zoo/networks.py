"""The paper's networks, with their data sets, training recipes and prunable weights.

All networks return logits or log-probabilities, so the loss of each is cross-entropy: on MLPNet's
log-probabilities it is the negative log-likelihood.

The MLPNet in `assets` is the result of `chita train mlpnet --seed 0`, the recipe below on the full
training set of MNIST with two threads; its accuracy on the test set of MNIST is 97.00 %.
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

_ASSETS = Path(__file__).parent / "assets"
_IMAGES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


@dataclass(frozen=True)
class Embedded:
    """Trained weights that ship with the package, and the name of the data set for them."""

    checkpoint: Path
    data: str


@dataclass(frozen=True)
class Network:
    """A network of the paper.

    Args:
        name: the name of the network.
        build: builds a model with untrained weights.
        data: the data set of its training.
        prunable: glob patterns of the parameters that the paper prunes.
        recipe: the training recipe; its augmentation is also used to re-estimate batch norm.
        embedded: the weights and data that ship with the package, if any.
        classes: the number of classes.
        preprocessing: the preprocessing of images; None if its data have the right size.
        batch_size: the images in a batch where the size affects only speed and memory.
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
    """Return the network of that name."""
    if name not in NETWORKS:
        raise ChitaError(f"network {name!r} is unknown; known are {', '.join(NETWORKS)}")
    return NETWORKS[name]
