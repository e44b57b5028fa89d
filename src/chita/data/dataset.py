"""Labelled images, in memory or in files, and normalised batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.model.samples.fingerprint import fingerprint

if TYPE_CHECKING:
    from typing_extensions import Self

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


class Images(Protocol):
    """Labelled uint8 images, in any storage, or other samples that need no normalisation."""

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each channel, of pixels scaled to [0, 1], that networks expect.

        It is empty for samples that are used as they are.
        """

    @property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of each channel that networks expect."""

    def __len__(self) -> int:
        """Return the number of images."""

    def fingerprint(self) -> str:
        """Return a hash that differs for other images, other labels and another order."""

    def shuffled(self, seed: int) -> Images:
        """Return the same images in an order drawn from the seed."""

    def to(self, device: torch.device | str) -> Images:
        """Return the same images, on `device` if they are in memory."""

    def read(
        self,
        order: Tensor,
        batch_size: int,
        *,
        augment: Augmentation | None,
        generator: torch.Generator,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of (B, C, H, W) uint8 images and (B,) int64 labels.

        Args:
            order: (K,) the indices of the images to read.
            batch_size: the most images in a batch.
            augment: the augmentation of the images.
            generator: the CPU generator of the augmentation.
        """


def check_labels(labels: Tensor, classes: int, path: Path) -> None:
    """Raise an error, with the file of the labels, unless all of them are below `classes`."""
    if len(labels) and labels.max() >= classes:
        raise ChitaError(
            f"{path} is damaged or has other data: it has the label {int(labels.max())}, labels "
            f"are below {classes}"
        )


@dataclass(frozen=True)
class TensorData:
    """Labelled samples in memory.

    Args:
        images: (N, ...) images, or samples of any other kind.
        labels: (N,) int64.
        mean: mean of each channel, of pixels scaled to [0, 1]; empty for samples that are used as
            they are.
        std: standard deviation of each channel; empty if `mean` is.
    """

    images: Tensor
    labels: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.images)

    def fingerprint(self) -> str:
        """Return a hash of all pixels and labels, and of the normalisation."""
        scale = torch.tensor([self.mean, self.std])
        return fingerprint([("images", self.images), ("labels", self.labels), ("scale", scale)])

    def shuffled(self, seed: int) -> Self:
        """Return the same images in an order drawn from the seed."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return replace(self, images=self.images[order], labels=self.labels[order])

    def to(self, device: torch.device | str) -> Self:
        """Return the same images on `device`."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def read(
        self,
        order: Tensor,
        batch_size: int,
        *,
        augment: Augmentation | None,
        generator: torch.Generator,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of images and labels on the device of the images (see `Images`)."""
        order = order.to(self.images.device)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            images = self.images[chosen]
            if augment is not None:
                images = augment(images, generator)
            yield images, self.labels[chosen]


@dataclass(frozen=True)
class ImageData(TensorData):
    """Images in memory, with the normalisation that networks expect.

    Args:
        images: (N, C, H, W) uint8.
        labels: (N,) int64.
        mean: mean of each channel, of pixels scaled to [0, 1].
        std: standard deviation of each channel.
    """

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or not len(self.images):
            raise ChitaError(
                "images must be uint8 of shape (N, C, H, W), at least one, got "
                f"{self.images.dtype} of shape {tuple(self.images.shape)}"
            )
        if self.labels.shape != (len(self.images),):
            raise ChitaError(
                f"labels must be one for each of the {len(self.images)} images, got shape "
                f"{tuple(self.labels.shape)}"
            )


@dataclass(frozen=True)
class Splits:
    """The training and test images of a data set."""

    train: Images
    test: Images


class Batches:
    """Normalised float32 batches `(inputs, targets)` of a data set, for any number of iterations.

    Samples that need no normalisation keep their type.

    Iteration i of two `Batches` with the same arguments gives the same batches, even if earlier
    iterations were not completed.

    Args:
        data: the images; those in memory are moved to `device` once.
        batch_size: the images in a batch; the last one may have fewer.
        shuffle: use a new order for each iteration instead of that of the data.
        augment: the augmentation of the uint8 images before normalisation.
        seed: the seed of the orders and the augmentation.
        limit: the number of images in one iteration, the first ones of the order.
        device: the device of the batches.
    """

    def __init__(
        self,
        data: Images,
        batch_size: int,
        *,
        shuffle: bool = False,
        augment: Augmentation | None = None,
        seed: int = 0,
        limit: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        for argument, value in (("batch_size", batch_size), ("limit", limit)):
            if value is not None and value < 1:
                raise ChitaError(f"{argument} must be at least 1, got {value}")
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.augment = augment
        self.samples = len(data) if limit is None else min(limit, len(data))
        self._data = data.to(device)
        self._device = device
        self._mean = torch.tensor(data.mean, dtype=torch.float32, device=device)[:, None, None]
        self._std = torch.tensor(data.std, dtype=torch.float32, device=device)[:, None, None]
        self._seeds = torch.Generator().manual_seed(seed)

    @property
    def order_is_fixed(self) -> bool:
        """Whether every iteration gives the same samples in the same order."""
        return not self.shuffle and self.augment is None

    @property
    def repeats_samples(self) -> bool:
        """Whether every iteration gives the same samples, in any order."""
        return self.augment is None

    def fingerprint(self) -> str:
        """Return a hash of the images and of how many of them an iteration has."""
        return f"{self._data.fingerprint()} {self.samples}"

    def __len__(self) -> int:
        """Return the number of batches in one iteration."""
        return -(-self.samples // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        # Each iteration has its own generator, so that an incomplete or concurrent iteration does
        # not affect the others.
        own_seed = int(torch.randint(2**62, (), generator=self._seeds))
        return self._batches(torch.Generator().manual_seed(own_seed))

    def _batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self._data)
        order = torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
        read = self._data.read(
            order[: self.samples], self.batch_size, augment=self.augment, generator=generator
        )
        for images, labels in read:
            images = images.to(self._device)
            if self._data.mean:
                images = (images.float() / 255 - self._mean) / self._std
            yield images, labels.to(self._device)
