"""The trained networks of the benchmarks and their data, for each seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from chita import data, zoo
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.model.batch_norm import reestimate_batch_norm
from chita.paper.small_imagenet import SIZE, is_small_imagenet, lay_out
from chita.report.published import EMBEDDED
from chita.zoo.network_data import IMAGE_FOLDER
from chita.zoo.trained import Trained, open_trained
from chita.zoo.weights import find_weights

CHECKPOINTS = {"mlpnet": "mlpnet_mnist.safetensors", "resnet20": "resnet20_cifar10.safetensors"}
IMAGENET_CHECKPOINTS = {
    "mobilenetv1": "mobilenetv1_imagenet.safetensors",
    "mobilenetv1-folded": "mobilenetv1_imagenet_folded.safetensors",
    "resnet50": "resnet50_imagenet.safetensors",
}


@dataclass(frozen=True)
class Subject:
    """A trained network and its data.

    Attributes:
        name: the name in keys and tables.
        trained: the network, its checkpoint and its data.
        cache: the folder of models that take long to prepare.
    """

    name: str
    trained: Trained
    cache: Path

    @property
    def network(self) -> zoo.Network:
        """The network of the zoo."""
        return self.trained.network

    @property
    def device(self) -> torch.device:
        """The device that the network runs on."""
        return self.trained.place

    @property
    def splits(self) -> data.Splits:
        """The training and test images."""
        return self.trained.splits

    @property
    def test(self) -> data.Batches:
        """The test set."""
        test: data.Batches = self.trained.test
        return test

    @property
    def augments(self) -> bool:
        """Whether the network was trained on augmented images."""
        return self.network.augment is not None

    def calibration(self, seed: int, *, augment: bool = False) -> data.Batches:
        """Return the training set in random order.

        Args:
            seed: the seed of the order and of the augmentation.
            augment: whether to augment the images as in training (pad, crop and flip for ResNet20),
                anew in each pass.

        Raises:
            ChitaError: `augment` is set, but the network was trained without augmentation.
        """
        if augment and not self.augments:
            raise ChitaError(f"augment=True: {self.name} was trained without augmentation")
        return data.Batches(
            self.splits.train.shuffled(seed),
            self.network.batch_size,
            augment=self.network.augment if augment else None,
            seed=seed,
            device=self.device,
        )

    def model(self, seed: int) -> nn.Module:
        """Return the trained network.

        The batch norm of ResNet20 is re-estimated on augmented data, as in the paper.
        """
        augment = self.network.augment
        if augment is None or self.network.name in IMAGENET_CHECKPOINTS:
            return self.trained.build()
        ready = self.cache / f"{self.name}-{seed}.safetensors"
        if ready.exists():
            return replace(self.trained, checkpoint=ready).build()
        model = self.trained.build()
        augmented = data.Batches(
            self.splits.train, 128, shuffle=True, augment=augment, seed=seed, device=self.device
        )
        reestimate_batch_norm(model, augmented)
        self.cache.mkdir(exist_ok=True)
        save_checkpoint(model, ready)
        return model


def find_subjects(
    checkpoints: Path | None, *, device: torch.device, out: Path, imagenet: Path | None = None
) -> dict[str, Subject]:
    """Return the paper's networks with trained weights, or the MLPNet that ships with chita.

    Args:
        checkpoints: the folder with the files in CHECKPOINTS; None for the embedded network.
        device: the device that the networks run on.
        out: the folder of the benchmark; a subfolder caches prepared networks.
        imagenet: the folder of ImageNet, or of the small one (`paper/small_imagenet.py`); it adds
            the networks of IMAGENET_CHECKPOINTS.
    """
    cache = out / "networks"
    if checkpoints is None and imagenet is None:
        mlpnet = zoo.get("mlpnet")
        return {EMBEDDED: Subject(EMBEDDED, open_trained(mlpnet, place=device), cache)}
    found = {}
    for name, file in CHECKPOINTS.items():
        network = zoo.get(name)
        if checkpoints is not None and (checkpoints / file).is_file():
            trained = open_trained(network, checkpoints / file, place=device)
            found[name] = Subject(name, trained, cache)
    if imagenet is not None:
        return found | _imagenet_subjects(checkpoints, imagenet, device, cache)
    missing = [file for name, file in CHECKPOINTS.items() if name not in found]
    if missing:
        raise ChitaError(
            f"--checkpoints {checkpoints} must be a folder with {' and '.join(missing)}; omit it "
            "to use the network that ships with chita"
        )
    return found


def _imagenet_subjects(
    checkpoints: Path | None, imagenet: Path, device: torch.device, cache: Path
) -> dict[str, Subject]:
    """Return those ImageNet networks whose trained weights exist."""
    found, small, folder = {}, is_small_imagenet(imagenet), imagenet
    if small:
        folder = lay_out(imagenet, cache / "imagenet")
    for name, file in IMAGENET_CHECKPOINTS.items():
        network = zoo.get(name)
        weights = _imagenet_weights(network, checkpoints, file)
        if weights is None:
            continue
        network = _uncropped(network) if small else network
        trained = open_trained(network, weights, f"{IMAGE_FOLDER}{folder}", place=device)
        found[name] = Subject(name, trained, cache)
    if not found:
        raise ChitaError(
            f"--imagenet {imagenet} needs the trained weights of MobileNetV1 or ResNet50: run "
            "`chita weights get resnet50` first, or pass --checkpoints with "
            f"{' or '.join(IMAGENET_CHECKPOINTS.values())}, got {checkpoints}"
        )
    return found


def _imagenet_weights(network: zoo.Network, checkpoints: Path | None, file: str) -> Path | None:
    """Return the weights among the checkpoints, or else those in the cache."""
    if checkpoints is not None and (checkpoints / file).is_file():
        return checkpoints / file
    return find_weights(network.name) if network.weights else None


def _uncropped(network: zoo.Network) -> zoo.Network:
    """Return the network for images that have been cropped to its size already."""
    preprocessing = network.preprocessing and replace(network.preprocessing, resize=SIZE)
    variants = tuple(map(_uncropped, network.variants))
    return replace(network, preprocessing=preprocessing, variants=variants)
