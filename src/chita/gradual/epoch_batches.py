"""The batches of an epoch, drawn from the seed and the number of the epoch alone.

An epoch is therefore the same in a resumed training.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from chita.data.dataset import Augmentation, Batches, ImageData, Images
from chita.errors import ChitaError
from chita.model.seeds import generator_of, seed_of
from chita.solver.ranks import ALONE, Ranks


class Feed:
    """Batches of unnormalised training images; the training step normalises them.

    An incomplete batch at the end of an epoch is dropped, so that all batches have one shape.

    Args:
        data: the training images; images in memory are moved to `device` once.
        batch_size: the images in a batch, over all ranks.
        augment: the augmentation, if any.
        seed: the seed of the order and of the augmentation.
        device: the device of the batches.
        ranks: the ranks, each of which gets an equal part of each batch.
    """

    def __init__(
        self,
        data: Images,
        batch_size: int,
        *,
        augment: Augmentation | None,
        seed: int,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> None:
        if batch_size > len(data):
            raise ChitaError(
                f"batch_size must be at most the number of training images, {len(data)}, "
                f"got {batch_size}"
            )
        if batch_size % ranks.size:
            raise ChitaError(
                f"batch_size must be a multiple of the number of ranks, {ranks.size}, "
                f"got {batch_size}"
            )
        if augment is not None and not data.mean:
            raise ChitaError(
                "augment is for the images of a data set or an image folder: leave it out of the "
                "recipe, and augment your own data before they are given"
            )
        self.batch_size = batch_size
        self._data = data.to(device)
        self._augment = augment
        self._seed = seed
        self._device = device
        self._ranks = ranks

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self._data) // self.batch_size

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this rank's part of each batch: (B, C, H, W) uint8 images and (B,) labels."""
        share = self.batch_size // self._ranks.size
        order = torch.randperm(len(self._data), generator=generator_of(self._seed, number))
        parts = order[: len(self) * self.batch_size].view(len(self), self._ranks.size, share)
        mine = parts[:, self._ranks.rank].flatten()
        # Images in memory are augmented all at once: a GPU would wait for many small calls.
        at_once = len(mine) if isinstance(self._data, ImageData) else share
        read = self._data.read(
            mine,
            at_once,
            augment=self._augment,
            generator=generator_of(self._seed, number, self._ranks.rank),
        )
        for images, labels in read:
            whole = images.to(self._device), labels.to(self._device)
            yield from zip(*(torch.split(each, share) for each in whole), strict=True)

    def calibration(self, number: int) -> EpochCalibration:
        """Return normalised batches for a pruning step before an epoch."""
        return EpochCalibration(
            self._data, self.batch_size, seed=seed_of(self._seed, number), device=self._device
        )


class EpochCalibration:
    """Images without augmentation, in the same order at each iteration and on all ranks.

    Images are read only when the object is iterated.
    """

    def __init__(self, data: Images, batch_size: int, *, seed: int, device: torch.device) -> None:
        self._data = data
        self._batch_size = batch_size
        self._seed = seed
        self._device = device

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(
            Batches(
                self._data, self._batch_size, shuffle=True, seed=self._seed, device=self._device
            )
        )
