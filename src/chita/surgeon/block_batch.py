"""Blocks side by side: a batch of them is one tensor, and costs one call for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from chita.l0.algorithm import Layout

COLUMNS = 16384  # in a batch at most, unless one block has more: a small part of A


@dataclass(frozen=True)
class BlockBatch:
    """Adjacent blocks [start, stop), b of them, the largest of size B.

    Smaller ones are padded with zero columns, which no inverse of a damped Fisher mixes with the
    others.
    """

    blocks: tuple[tuple[int, int], ...]

    @property
    def start(self) -> int:
        return self.blocks[0][0]

    @property
    def stop(self) -> int:
        return self.blocks[-1][1]

    def stack(self, entries: Tensor) -> Tensor:
        """What all p weights have, (p, ...), as (b, B, ...); no copy if the blocks are equal."""
        sizes = {stop - start for start, stop in self.blocks}
        if len(sizes) == 1:
            shape = (len(self.blocks), sizes.pop(), *entries.shape[1:])
            return entries[self.start : self.stop].view(shape)
        return pad_sequence([entries[start:stop] for start, stop in self.blocks], batch_first=True)

    def unstack(self, stacked: Tensor) -> Tensor:
        """What the weights of the blocks have, (b, B), as one vector without the padding."""
        parts = zip(stacked, self.blocks, strict=True)
        return torch.cat([row[: stop - start] for row, (start, stop) in parts])


def all_blocks(layout: Layout) -> list[tuple[int, int]]:
    """The blocks of a layout; one of all p weights if it has none."""
    return layout.blocks or [(0, sum(layout.layers))]


def block_batches(blocks: Iterable[tuple[int, int]]) -> Iterator[BlockBatch]:
    """The blocks in batches: adjacent ones, whose sizes differ from the first's by at most one.

    So do the blocks of a layer, which is cut evenly.
    """
    batch: list[tuple[int, int]] = []
    for start, stop in blocks:
        size = stop - start
        if batch:
            first = batch[0][1] - batch[0][0]
            if abs(size - first) > 1 or stop - batch[0][0] > COLUMNS:
                yield BlockBatch(tuple(batch))
                batch = []
        batch.append((start, stop))
    yield BlockBatch(tuple(batch))
