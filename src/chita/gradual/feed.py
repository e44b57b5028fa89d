"""The batches of an epoch: whatever is drawn for it comes from the seed and its number alone.

So an epoch is the same whether those before it were run in this process or in one that was killed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from chita.data.dataset import Augmentation, Batches, ImageData, Images
from chita.errors import ChitaError
from chita.solver.ranks import ALONE, Ranks


class Feed:
    """Batches of training images as they are stored; the training step normalises them.

    What is left of an epoch after its last whole batch is dropped, so that all have one shape.

    Args:
        data: the training images; those in memory are moved to `device` once.
        batch_size: images in a batch of all ranks together.
        augment: what is done to the images.
        seed: of the orders and the augmentation.
        device: where the batches are made.
        ranks: that get an equal part of each batch.
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
        self.batch_size = batch_size
        self._data = data.to(device)
        self._augment = augment
        self._seed = seed
        self._device = device
        self._ranks = ranks

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._data) // self.batch_size

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's part of each batch: (B, C, H, W) uint8 images and (B,) labels."""
        share = self.batch_size // self._ranks.size
        order = torch.randperm(len(self._data), generator=_generator(self._seed, number))
        parts = order[: len(self) * self.batch_size].view(len(self), self._ranks.size, share)
        mine = parts[:, self._ranks.rank].flatten()
        # Images in memory are augmented all at once: a GPU would wait for many small calls.
        at_once = len(mine) if isinstance(self._data, ImageData) else share
        read = self._data.read(
            mine,
            at_once,
            augment=self._augment,
            generator=_generator(self._seed, number, self._ranks.rank),
        )
        for images, labels in read:
            whole = images.to(self._device), labels.to(self._device)
            yield from zip(*(torch.split(each, share) for each in whole), strict=True)

    def calibration(self, number: int) -> Calibration:
        """Normalised batches for a pruning step before that epoch."""
        return Calibration(
            self._data, self.batch_size, seed=seed_of(self._seed, number), device=self._device
        )


class Calibration:
    """Images without augmentation, in an order that is the same at each iteration and on all ranks.

    Nothing is done for epochs before which no data are asked for.
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


def seed_of(*key: int) -> int:
    """A seed for each key, unlike those of its neighbours."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "big")


@contextmanager
def drawing(seed: int, place: torch.device) -> Iterator[None]:
    """What layers such as dropout draw comes from the seed; the global generators come back."""
    gpus = [place] if place.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            with torch.cuda.device(place):
                torch.cuda.manual_seed(seed)
        yield


def _generator(*key: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*key))
