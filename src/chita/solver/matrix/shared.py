"""A shared by ranks: each computes some rows of all columns and stores all rows of some columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from chita.solver.matrix.in_memory import Demand, HeldMatrix, Place, Target
from chita.solver.ranks import Ranks

SHARE = 33  # the ratio of a rank's part of A to its buffer of rows to send or receive


class SharedTarget(Target):
    """A target that sends rows, a few at a time, to the ranks that store their columns.

    No rank holds more than its share of A plus a tenth.

    Args:
        demand: the rows of this rank.
        ranks: the ranks that share A.
        bounds: rank r stores the columns [bounds[r], bounds[r + 1]).
        counts: the number of rows that each rank computes.
    """

    def __init__(
        self, demand: Demand, ranks: Ranks, bounds: Sequence[int], counts: Sequence[int]
    ) -> None:
        super().__init__(0, demand.columns)
        self._ranks, self._bounds, self._counts = ranks, bounds, counts
        self._firsts = [0, *accumulate(counts)]
        columns = bounds[ranks.rank + 1] - bounds[ranks.rank]
        self._stored = torch.empty(columns, sum(counts), dtype=demand.dtype, device=demand.device)
        self.most_rows = max(1, sum(counts) // (SHARE * ranks.size))
        self._waiting = self._stored.new_empty(demand.columns, self.most_rows)
        self._waits = 0
        self._sent = 0
        self._place = Place(self._waiting[:, :0])

    def begin(self, rows: int) -> Place:
        self._place = Place(self._waiting.new_empty(self.last, rows))
        return self._place

    def end(self) -> None:
        rows = self._place.columns
        while rows.shape[1]:
            some = rows[:, : self.most_rows - self._waits]
            self._waiting[:, self._waits : self._waits + some.shape[1]] = some
            self._waits += some.shape[1]
            rows = rows[:, some.shape[1] :]
            if self._waits == self.most_rows:
                self._exchange()
        self._place = Place(self._waiting[:, :0])  # frees the memory of the rows

    def _exchange(self) -> None:
        """Send the buffered rows; ranks that have sent all of their rows send none."""
        counts = [min(self.most_rows, max(count - self._sent, 0)) for count in self._counts]
        given = self._waiting[:, : counts[self._ranks.rank]]
        received = self._ranks.exchange(given, self._bounds, counts)
        for first, rows in zip(self._firsts, received, strict=False):
            start = first + self._sent
            self._stored[:, start : start + rows.shape[1]] = rows
        self._sent += self.most_rows
        self._waits = 0

    def matrix(self, again: Callable[[Target], None]) -> HeldMatrix:
        while self._sent < max(self._counts):
            self._exchange()
        self._waiting = Tensor()
        return HeldMatrix(self._stored, self._ranks)
