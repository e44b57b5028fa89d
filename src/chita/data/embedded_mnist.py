"""The slice of MNIST inside the package: idx files, compressed with xz to stay below 3 MB.

17,000 training images give 1000 rows of A with 16 images per row, and 1000 held-out images for the
ridge; 4000 test images measure accuracy. Both are picked evenly from all of MNIST, because the
second half of its test set is harder. To make the files again from the full data set:

    python -c "from chita import data; from chita.data import embedded_mnist as slice;
    slice.write_slice(data.load('mnist'), slice.ASSETS)"
"""

from __future__ import annotations

import lzma
from pathlib import Path

import torch
from torch import Tensor

from chita.data.dataset import Images, Splits
from chita.data.idx import decode_idx, encode_idx
from chita.data.sources import MNIST_FILES, mnist_images

ASSETS = Path(__file__).parent / "assets"
SLICE_NAME = "mnist-slice"
SLICE_SIZES = (17_000, 4_000)


def read_slice(folder: Path = ASSETS) -> Splits:
    """Return the slice of MNIST that ships with the package."""

    def read(name: str) -> Tensor:
        path = folder / f"{name}.xz"
        return decode_idx(lzma.decompress(path.read_bytes()), str(path))

    train_images, train_labels, test_images, test_labels = map(read, MNIST_FILES)
    return Splits(mnist_images(train_images, train_labels), mnist_images(test_images, test_labels))


def write_slice(mnist: Splits, folder: Path) -> None:
    """Write the slice of the full data set into a folder."""
    train, test = (
        _pick(data, size) for data, size in zip((mnist.train, mnist.test), SLICE_SIZES, strict=True)
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in zip(MNIST_FILES, (*train, *test), strict=True):
        content = lzma.compress(encode_idx(values), preset=9 | lzma.PRESET_EXTREME)
        (folder / f"{name}.xz").write_bytes(content)


def _pick(data: Images, size: int) -> tuple[Tensor, Tensor]:
    """Pick evenly spread images, (size, 28, 28) uint8, and their labels, (size,) uint8."""
    chosen = torch.arange(size) * len(data) // size
    images, labels = next(data.read(chosen, size, augment=None, generator=torch.Generator()))
    return images[:, 0], labels.to(torch.uint8)
