"""Blocks side by side: a batch of them is one tensor, and costs one call for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

COLUMNS = 16384  # in a batch at most, unless one block has more: a small part of A


@dataclass(frozen=True)
class BlockBatch:
    """Adjacent blocks [start, stop), b of them, the largest of size B.

    Smaller ones are padded with zero columns, which no inverse of a damped Fisher mixes with the
    others, and whose gradient is zero. A rank that waits for others has a batch of no blocks.
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
        """What all p weights have, (p, ...), as (b, B, ...); no copy if the blocks are equal."""
        return self.stack_own(entries[self.start : self.stop])

    def stack_own(self, entries: Tensor) -> Tensor:
        """What the weights of these blocks have, (c, ...), as (b, B, ...)."""
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
        """What the weights of the blocks have, (b, B), as one vector without the padding."""
        parts = zip(stacked, self.sizes, strict=True)
        return torch.cat([stacked.new_empty(0), *(row[:size] for row, size in parts)])


def block_batches(
    blocks: Iterable[tuple[int, int]], columns: int = COLUMNS, alike: float = 1.0
) -> Iterator[BlockBatch]:
    """The blocks in batches: adjacent ones, of sizes that are much alike.

    Args:
        blocks: [start, stop), in order.
        columns: in a batch at most, padding included, unless one block has more.
        alike: the share of the largest block's size that the smallest has at least; 1 for blocks
            of one size, as most of a layer are, which is cut evenly.
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
