"""The paper's networks, with their data sets, training recipes and prunable weights.

All networks return logits or log-probabilities, so the loss of each is cross-entropy: on MLPNet's
log-probabilities it is the negative log-likelihood.

The MLPNet in `assets` is the result of `chita train mlpnet --seed 0`, the recipe below on the full
training set of MNIST with two threads; its accuracy on the test set of MNIST is 97.00 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import nn

from chita.data.dataset import Augmentation
from chita.data.preprocessing import Preprocessing, RandomResizedCrop, pad_crop_flip
from chita.data.text import Encode
from chita.errors import ChitaError, is_one_of
from chita.zoo.mlpnet import MLPNet
from chita.zoo.mobilenetv1 import MobileNetV1, MobileNetV1Folded
from chita.zoo.resnet20 import ResNet20
from chita.zoo.resnet50 import KERAS, ResNet50
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
    """A network of the paper, or one that a user refers to (see `given_network.py`).

    Args:
        name: the name of the network.
        build: builds a model whose weights are untrained, or replaced by a checkpoint.
        data: the data set of its training; None if it is unknown.
        prunable: glob patterns of the parameters that the paper prunes; None for all that
            `chita.prune` can prune.
        recipe: the training recipe, if any; its augmentation is also used to re-estimate batch
            norm.
        embedded: the weights and data that ship with the package, if any.
        build_trained: builds a model with trained weights, which need no checkpoint.
        classes: the number of classes; None if it is unknown.
        preprocessing: the preprocessing of images; None if its data have the right size.
        channels: the channels of these images.
        batch_size: the images in a batch where the size affects only speed and memory.
        reads: the files and folders that `build_trained` reads.
        tokenizer: reads the tokenizer; None for a network that does not take text.
        save: writes a model into a folder in the format that it was read from; None for a plain
            checkpoint.
        writes: the files that `save` may write beside the weights.
        variants: other forms of the network under the same name, for checkpoints that need them.
        weights: whether `chita weights get` has trained weights under the name of the network.
    """

    name: str
    build: Callable[[], nn.Module]
    data: str | None
    prunable: tuple[str, ...] | None
    recipe: Recipe | None
    embedded: Embedded | None = None
    build_trained: Callable[[], nn.Module] | None = None
    classes: int | None = 10
    preprocessing: Preprocessing | None = None
    channels: int = 3
    batch_size: int = 1000
    reads: tuple[Path, ...] = ()
    tokenizer: Callable[[], Encode] | None = None
    save: Callable[[nn.Module, Path], None] | None = None
    writes: tuple[str, ...] = ()
    variants: tuple[Network, ...] = ()
    weights: bool = False

    @property
    def input_shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width of an image; None if the inputs are unknown."""
        if self.preprocessing is None:
            return None if self.data is None else _IMAGES[self.data]
        return self.channels, self.preprocessing.size, self.preprocessing.size

    @property
    def augment(self) -> Augmentation | None:
        """The augmentation of the training images."""
        return None if self.recipe is None else self.recipe.augment


def _imagenet(
    name: str,
    build: Callable[[], nn.Module],
    *,
    prunable: tuple[str, ...],
    weight_decay: float,
    preprocessing: Preprocessing,
    variants: tuple[Network, ...] = (),
    weights: bool = False,
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
        variants=variants,
        weights=weights,
    )


def _resnet50(
    build: Callable[[], nn.Module],
    preprocessing: Preprocessing,
    variants: tuple[Network, ...] = (),
) -> Network:
    return _imagenet(
        "resnet50",
        build,
        prunable=("*conv?.weight", "*.downsample.0.weight", "fc.weight"),
        weight_decay=1e-4,
        preprocessing=preprocessing,
        variants=variants,
        weights=True,
    )


# Keras subtracts these means from pixels of 0 to 255, and does not divide.
_KERAS_IMAGES = Preprocessing(mean=(123.68 / 255, 116.779 / 255, 103.939 / 255), std=(1 / 255,) * 3)


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
            weights=True,
        ),
        _resnet50(
            ResNet50,
            Preprocessing(),
            variants=(_resnet50(partial(ResNet50, KERAS), _KERAS_IMAGES),),
        ),
    )
}


def get(name: str) -> Network:
    """Return the network of that name."""
    if not is_one_of(name, NETWORKS):
        raise ChitaError(f"network {name!r} is unknown; known are {', '.join(NETWORKS)}")
    return NETWORKS[name]
