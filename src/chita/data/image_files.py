"""Labelled image files, decoded by worker processes when they are read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from chita.data.dataset import Augmentation
from chita.data.decode import decode
from chita.data.preprocessing import Preprocessing
from chita.errors import ChitaError
from chita.model.samples.fingerprint import fingerprint

logger = logging.getLogger(__name__)

MOST_UNREADABLE = 0.01

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Labelled image files.

    Files that cannot be decoded are skipped with a warning, and raise an error if they are more
    than 1 % of all.

    Args:
        folder: the folder that the names of the files are relative to.
        files: (N,) names.
        labels: (N,) int64.
        preprocessing: the preprocessing of the network.
        workers: the number of processes that decode.
        unreadable: the names of the files that could not be decoded so far.
    """

    folder: Path
    files: Sequence[str]
    labels: Tensor
    preprocessing: Preprocessing
    workers: int
    unreadable: set[str] = field(default_factory=set)

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each channel that the network expects."""
        return self.preprocessing.mean

    @property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of each channel that the network expects."""
        return self.preprocessing.std

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, chosen: Tensor) -> ImageFiles:
        """Return the images of (K,) indices."""
        files = [self.files[i] for i in chosen.tolist()]
        return replace(self, files=files, labels=self.labels[chosen], unreadable=set())

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and labels of all files, which are not read."""
        sizes = [self._bytes_of(name) for name in self.files]
        names = "\0".join(self.files).encode(errors="surrogateescape")
        return fingerprint(
            [
                ("names", torch.frombuffer(bytearray(names), dtype=torch.uint8)),
                ("sizes", torch.tensor(sizes)),
                ("labels", self.labels),
            ]
        )

    def _bytes_of(self, name: str) -> int:
        try:
            return (self.folder / name).stat().st_size
        except OSError:  # an unreadable file
            return -1

    def shuffled(self, seed: int) -> ImageFiles:
        """Return the same images in an order drawn from the seed."""
        return self[torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))]

    def to(self, device: torch.device | str) -> ImageFiles:
        """Return the same images, which are not in memory."""
        return self

    def read(
        self,
        order: Tensor,
        batch_size: int,
        *,
        augment: Augmentation | None,
        generator: torch.Generator,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of images and labels (see `Images`).

        Args:
            order: (K,) the indices of the images to read.
            batch_size: the most images in a batch; unreadable ones are missing from it.
            augment: maps one image at a time, (1, 3, H, W) as in its file, to the size of the
                preprocessing; by default the crop for evaluation is used.
            generator: the generator of the augmentation, independent of the number of workers.
        """
        seed = int(torch.randint(2**62, (), generator=generator))
        part = self[order]
        decoding = _Decoding(str(self.folder), part.files, self.preprocessing, augment, seed)
        batches = -(-len(order) // batch_size)
        loader = DataLoader(
            decoding,
            batch_size,
            num_workers=min(self.workers, batches),
            collate_fn=_stack,
            generator=generator,  # by default the workers' seeds come from the global one
        )
        met: list[str] = []
        try:
            for images, positions, failed in loader:
                new = [part.files[i] for i in failed if part.files[i] not in self.unreadable]
                met += new
                self.unreadable.update(new)
                if self._too_many_unreadable():
                    raise ChitaError(
                        f"{len(self.unreadable)} of the {len(self)} images in {self.folder} cannot "
                        f"be read, more than {MOST_UNREADABLE:.0%}: replace or delete "
                        f"{some(sorted(self.unreadable))}"
                    )
                if images is not None:
                    yield torch.from_numpy(images), part.labels[positions]
        finally:  # the iteration may end early
            if met and not self._too_many_unreadable():
                logger.warning(
                    "%d of the %d images in %s cannot be read and are left out: %s",
                    len(self.unreadable), len(self), self.folder, some(met),
                )  # fmt: skip

    def _too_many_unreadable(self) -> bool:
        return len(self.unreadable) > MOST_UNREADABLE * len(self)


class _Decoding(Dataset[tuple[int, Pixels | None]]):
    """The data set of a worker: the cropped image at each position, None if unreadable."""

    def __init__(
        self,
        folder: str,
        files: Sequence[str],
        preprocessing: Preprocessing,
        augment: Augmentation | None,
        seed: int,
    ) -> None:
        self.folder = folder
        self.files = files
        self.preprocessing = preprocessing
        self.augment = augment
        self.seed = seed

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, position: int) -> tuple[int, Pixels | None]:
        try:
            image = decode(os.path.join(self.folder, self.files[position]))  # noqa: PTH118
        except Exception as error:  # Pillow raises many types of errors on a damaged file
            logger.info("%s: %s", self.files[position], error)
            return position, None
        if self.augment is None:
            image = self.preprocessing.centre(image)
        else:
            generator = torch.Generator().manual_seed(self.seed + position)
            image = self.augment(image[None], generator)[0]
        return position, image.numpy()


def _stack(
    items: list[tuple[int, Pixels | None]],
) -> tuple[Pixels | None, list[int], list[int]]:
    """Return the readable images as one array, their positions, and those of the others.

    An array is sent through a pipe; a tensor would need shared memory, which containers often lack.
    """
    images = [image for _, image in items if image is not None]
    positions = [position for position, image in items if image is not None]
    failed = [position for position, image in items if image is None]
    return (np.stack(images) if images else None), positions, failed


def some(names: list[str]) -> str:
    """Return the first few names for a message."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
