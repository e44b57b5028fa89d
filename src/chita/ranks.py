"""Ranks: the processes that share the columns of A, and what they tell each other.

Every rank holds some of the columns, all n rows of them, in the order of the ranks. Sums over
columns end in a reduction of size n or n x n; everything else is local. One process alone is the
same code with reductions that do nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
