"""Batches of blocks: several blocks stacked into one tensor, so that one call handles all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

COLUMNS = 16384  # the most columns in a batch, unless one block has more: a small part of A


@dataclass(frozen=True)
class BlockBatch:
    """Adjacent blocks [start, stop), b of them, the largest of size B.

    Smaller blocks are padded with zero columns. The inverse of a damped Fisher matrix does not mix
    these with other columns, and their gradient is zero. A rank that waits for others has an empty
    batch.
    """

    blocks: tuple[tuple[int, int], ...]

    @property
    def start(self) -> int:
        return self.blocks[0][0] if self.blocks else 0

    @property
    def stop(self) -> int:
        return self.blocks[-1][1] if self.blocks else 0

    @property
    def sizes(self) -> list[int]:
        return [stop - start for start, stop in self.blocks]

    def stack(self, entries: Tensor) -> Tensor:
        """Stack entries of all p weights, (p, ...), to (b, B, ...); no copy for equal blocks."""
        return self.stack_own(entries[self.start : self.stop])

    def stack_own(self, entries: Tensor) -> Tensor:
        """Stack entries of the weights of these blocks, (c, ...), to (b, B, ...)."""
        sizes = self.sizes
        if len(set(sizes)) <= 1:
            return entries.view(len(sizes), max(sizes, default=0), *entries.shape[1:])
        own = torch.tensor(sizes, device=entries.device)
        inside = torch.arange(max(sizes), device=own.device) < own[:, None]
        places = inside.flatten().nonzero()[:, 0]
        stacked = entries.new_zeros(*inside.shape, *entries.shape[1:])
        stacked.flatten(0, 1).index_copy_(0, places, entries)
        return stacked

    def unstack(self, stacked: Tensor) -> Tensor:
        """Join entries of the blocks, (b, B), into one vector without the padding."""
        parts = zip(stacked, self.sizes, strict=True)
        return torch.cat([stacked.new_empty(0), *(row[:size] for row, size in parts)])


def block_batches(
    blocks: Iterable[tuple[int, int]], columns: int = COLUMNS, alike: float = 1.0
) -> Iterator[BlockBatch]:
    """Yield batches of adjacent blocks of similar sizes.

    Args:
        blocks: [start, stop), in order.
        columns: the most columns in a batch, padding included, unless one block has more.
        alike: the least ratio of the smallest block's size to the largest; 1 for blocks of one
            size, which most blocks of an evenly cut layer have.
    """
    batch: list[tuple[int, int]] = []
    smallest = largest = 0
    for start, stop in blocks:
        size = stop - start
        low, high = (min(smallest, size), max(largest, size)) if batch else (size, size)
        if batch and (low < alike * high or (len(batch) + 1) * high > columns):
            yield BlockBatch(tuple(batch))
            batch, low, high = [], size, size
        batch.append((start, stop))
        smallest, largest = low, high
    if batch:
        yield BlockBatch(tuple(batch))
