"""The paper's data sets, the slice of MNIST that ships with the package, and image folders."""

from __future__ import annotations

from chita.data.dataset import Batches, ImageData, Images, Splits
from chita.data.download import Progress
from chita.data.embedded_mnist import SLICE_NAME, read_slice
from chita.data.fetch import get
from chita.data.image_folder import image_folder
from chita.data.preprocessing import Preprocessing, RandomResizedCrop
from chita.data.sources import SOURCES
from chita.errors import ChitaError, is_one_of

__all__ = [
    "NAMES",
    "Batches",
    "ImageData",
    "Images",
    "Preprocessing",
    "RandomResizedCrop",
    "Splits",
    "get",
    "image_folder",
    "load",
]

NAMES = (SLICE_NAME, *SOURCES)


def load(name: str, *, progress: Progress | None = None) -> Splits:
    """Return the training and test images of a data set, and download them first if needed.

    Args:
        name: "mnist-slice" (needs no files), "mnist" or "cifar10".
        progress: called with the bytes received and the total bytes (0 if unknown) of each file
            that is downloaded from a site.
    """
    if not is_one_of(name, NAMES):
        raise ChitaError(f"data set {name!r} is unknown; known are {', '.join(NAMES)}")
    if name == SLICE_NAME:
        return read_slice()
    return SOURCES[name].load(get(name, progress=progress))
