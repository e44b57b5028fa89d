"""Ranks: the processes that share the columns of A, and what they tell each other.

Every rank holds some of the columns, all n rows of them, in the order of the ranks. Sums over
columns end in a reduction of size n or n x n; everything else is local. One process alone is the
same code with reductions that do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")


class Ranks:
    """One process alone."""

    rank: int = 0
    size: int = 1

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of the ranks' tensors, on all of them."""
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        """The largest of the ranks' tensors, entry by entry."""
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """The ranks' tensors in one, along dimension 0, where their sizes may differ."""
        return tensor

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """The tensor of the rank `source`; all give one of its shape."""
        return tensor

    def exchange(self, given: Tensor, bounds: Sequence[int], counts: Sequence[int]) -> list[Tensor]:
        """Rows for columns: each rank has some rows of all columns and gets its columns of all.

        Args:
            given: (p, counts[rank]), the rows of this rank.
            bounds: rank r has the columns [bounds[r], bounds[r + 1]), p = bounds[-1].
            counts: the number of rows that each rank gives.

        Returns:
            From every rank its rows of this rank's columns, (columns, count).
        """
        return [given]

    def from_first(self, make: Callable[[], Made]) -> Made:
        """What rank 0 makes, on all ranks."""
        return make()

    def total(self, count: int) -> int:
        """The sum of the ranks' counts."""
        return count if self.size == 1 else int(self.sum(torch.tensor(count)))

    def before(self, count: int) -> int:
        """The sum of the counts of the ranks before this one."""
        if self.size == 1:
            return 0
        return int(self.gather(torch.tensor([count]))[: self.rank].sum())

    def all(self, holds: bool) -> bool:
        """Whether it holds on every rank."""
        return holds if self.size == 1 else not self.total(not holds)


ALONE = Ranks()
