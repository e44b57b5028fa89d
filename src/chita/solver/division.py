"""The division of work among ranks: samples for the gradients, columns of A for the solve."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

from torch import Tensor

from chita.solver.algorithm import Layout
from chita.solver.ranks import Ranks
from chita.solver.solve import Solution


class Division:
    """The rows and columns of A that each rank has.

    Attributes:
        ranks: the ranks that share A.
        bounds: rank r has the columns [bounds[r], bounds[r + 1]): equal shares, up to whole blocks.
        layout: the layout of this rank's columns.
    """

    def __init__(self, ranks: Ranks, layout: Layout) -> None:
        self.ranks = ranks
        p = sum(layout.layers)
        shares = [p * rank // ranks.size for rank in range(ranks.size + 1)]
        blocks = layout.blocks
        if blocks is None:
            self.bounds = shares
        else:
            ends = [0, *(stop for _, stop in blocks)]
            self.bounds = [_nearest(ends, share) for share in shares]
        self.layout = layout
        if ranks.size > 1:
            self.layout = self._own_part(layout)

    def _own_part(self, layout: Layout) -> Layout:
        start, stop = self.bounds[self.ranks.rank : self.ranks.rank + 2]
        if layout.blocks is None:
            return Layout((stop - start,))
        own = [last - first for first, last in layout.blocks if start <= first < stop]
        return Layout(tuple(own), layout.block_size)  # each block is a layer, and stays whole

    @property
    def columns(self) -> slice:
        """The columns of this rank."""
        return slice(*self.bounds[self.ranks.rank : self.ranks.rank + 2])

    def rows(self, n: int) -> list[int]:
        """Return the number of rows, of n, that each rank computes, in the order of the rows."""
        return share_rows(n, self.ranks)

    def part(self, vector: Tensor) -> Tensor:
        """Return this rank's part of a vector over all columns."""
        return vector[self.columns]

    def whole(self, solution: Solution) -> Solution:
        """Join the parts of all ranks into a solution over all columns."""
        support = self.ranks.gather(solution.support + self.columns.start)
        return replace(solution, w=self.ranks.gather(solution.w), support=support)


def share_rows(n: int, ranks: Ranks) -> list[int]:
    """Divide n rows among the ranks as evenly as possible, in the order of the rows."""
    cuts = [n * rank // ranks.size for rank in range(ranks.size + 1)]
    return [stop - start for start, stop in pairwise(cuts)]


def _nearest(ends: list[int], share: int) -> int:
    """Return the end nearest to `share`, the lower of two; the ends are sorted and start at 0."""
    place = bisect_left(ends, share)
    below, above = ends[max(place - 1, 0)], ends[place]
    return below if share - below <= above - share else above
