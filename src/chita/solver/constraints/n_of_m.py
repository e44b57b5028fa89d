"""Groups of weights with limits on the number kept: N:M patterns, and limits by layer.

Group g keeps at least `least[g]` and at most `most[g]` weights, and all groups together k. These
supports are the bases of a matroid. Therefore the greedy projection is exact, and a support is
optimal exactly if no exchange of one weight inside for one outside improves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.constraints.constraint import Constraint, meeting_times, top_k
from chita.solver.ranks import ALONE, Ranks

PADDING = 4  # groups are sorted as rows of a matrix if it has at most this many times p entries
COMPARED = 8  # groups up to this size, such as those of 2:4, are ranked by comparing all pairs


class Groups(Constraint):
    """Limits on the number of weights that each group keeps.

    If k is below the sum of `least`, the k best among the `least` best of each group are kept. If k
    is above the sum of `most`, the `most` best of each group and the best of the rest are kept. So
    the larger supports on the way to a small one need no separate rule.

    Args:
        ids: the group of each column, (p,) int64, from 0 to G - 1.
        least: (G,) int64; a smaller group keeps all of its weights.
        most: (G,) int64, at least `least`.
    """

    def __init__(self, ids: Tensor, least: Tensor, most: Tensor) -> None:
        self.ids = ids
        self.sizes = torch.bincount(ids, minlength=len(least))
        if len(self.sizes) != len(least) or least.shape != most.shape:
            raise ChitaError(
                f"least and most must have a number for each of {len(self.sizes)} groups, got "
                f"{tuple(least.shape)} and {tuple(most.shape)}"
            )
        if bool((least < 0).any()) or bool((least > most).any()):
            raise ChitaError("least must be at least 0 and at most `most`")
        self.least, self.most = least.minimum(self.sizes), most.minimum(self.sizes)

    @classmethod
    def in_a_row(
        cls, sizes: Sequence[int], least: Sequence[int], most: Sequence[int], device: torch.device
    ) -> Groups:
        """Build adjacent groups, such as layers: group g has the next `sizes[g]` columns."""
        counts, low, high = (
            torch.tensor(numbers, dtype=torch.int64, device=device)
            for numbers in (list(sizes), list(least), list(most))
        )
        return cls(torch.arange(len(counts), device=device).repeat_interleave(counts), low, high)

    def largest(self, x: Tensor, k: int, ranks: Ranks = ALONE) -> Tensor:
        """Return the `least` best of each group, then the best of the rest, at most `most`."""
        least, most = self._limits(k)
        magnitude = x.abs()
        place = self._places(magnitude)
        kept = place < least[self.ids]
        rest = ((place < most[self.ids]) & ~kept).nonzero()[:, 0]
        kept[rest[top_k(magnitude[rest], k - int(kept.sum()))]] = True
        return kept.nonzero()[:, 0]

    def breaking_point(self, w: Tensor, g: Tensor, support: Tensor, ranks: Ranks = ALONE) -> float:
        """Return tau_c for the exchanges that the limits allow.

        A weight may be replaced by one of its own group. It may be replaced by one of another group
        if its group keeps more than `least` and the other one fewer than `most`.
        """
        if not len(support):
            return torch.inf
        least, most = self._limits(len(support))
        group = self.ids[support]
        counts = torch.bincount(group, minlength=len(least))
        pull = g.abs().index_fill_(0, support, -torch.inf)
        within = pull.new_full(least.shape, -torch.inf).scatter_reduce_(0, self.ids, pull, "amax")
        anywhere = torch.where(counts < most, within, -torch.inf).max()
        rival = torch.where(counts > least, anywhere.maximum(within), within)
        return float(meeting_times(w[support], g[support], rival[group]).min())

    def restrict(self, index: Tensor) -> Groups:
        present, ids = torch.unique(self.ids[index], return_inverse=True)
        return Groups(ids, self.least[present], self.most[present])

    def block(self, start: int, stop: int, kept: Tensor) -> Groups:
        """Return the limits of groups inside the block; a group that it cuts keeps its count."""
        present, ids = torch.unique(self.ids[start:stop], return_inverse=True)
        whole = torch.bincount(ids) == self.sizes[present]
        counts = torch.bincount(ids[kept], minlength=len(present))
        return Groups(
            ids,
            torch.where(whole, self.least[present], counts),
            torch.where(whole, self.most[present], counts),
        )

    def free_in(self, blocks: Sequence[tuple[int, int]]) -> bool:
        """Return True if each block lies within one group, as blocks of layers do."""
        runs = torch.constant_pad_nd((self.ids.diff() != 0).cumsum(0), (1, 0))
        first, last = ([block[end] - end for block in blocks] for end in (0, 1))
        return torch.equal(runs[first], runs[last])

    def _limits(self, k: int) -> tuple[Tensor, Tensor]:
        """Return `least` and `most` for supports of size k, as far as k allows."""
        fewest, widest = self._sums
        if k < fewest:
            return torch.zeros_like(self.least), self.least
        if k > widest:
            return self.most, self.sizes
        return self.least, self.most

    @cached_property
    def _sums(self) -> tuple[int, int]:
        return int(self.least.sum()), int(self.most.sum())

    def _places(self, magnitude: Tensor) -> Tensor:
        """Return the rank 0, 1, ... of each entry in its group, (p,); the first of equals leads."""
        if self._rows is None:
            order = magnitude.argsort(descending=True, stable=True)
            order = order[self.ids[order].argsort(stable=True)]
            firsts = (self.sizes.cumsum(0) - self.sizes).repeat_interleave(self.sizes)
            places = torch.arange(len(order), device=order.device) - firsts
            return torch.empty_like(order).index_copy_(0, order, places)
        padded = torch.cat([magnitude, magnitude.new_full((1,), -1.0)])
        rows = padded[self._rows]
        if rows.shape[1] <= COMPARED:
            place = torch.empty(len(padded), dtype=torch.int64, device=rows.device)
            return place.index_copy_(0, self._rows.flatten(), _ranks(rows).flatten())[:-1]
        order = self._rows.gather(1, rows.argsort(dim=1, descending=True, stable=True))
        place = torch.empty(len(padded), dtype=torch.int64, device=order.device)
        place[order] = torch.arange(order.shape[1], device=order.device).expand_as(order)
        return place[:-1]

    @cached_property
    def _rows(self) -> Tensor | None:
        """The columns of each group, (G, size of the largest), padded with p.

        None if there would be too much padding.
        """
        p, largest = len(self.ids), int(self.sizes.max()) if len(self.sizes) else 0
        if len(self.sizes) * largest > PADDING * p:
            return None
        columns = self.ids.argsort(stable=True)
        ids = self.ids[columns]
        firsts = self.sizes.cumsum(0) - self.sizes
        rows = columns.new_full((len(self.sizes), largest), p)
        rows[ids, torch.arange(p, device=ids.device) - firsts[ids]] = columns
        return rows


def _ranks(rows: Tensor) -> Tensor:
    """Return the rank 0, 1, ... of each entry in its short row; the first of equals leads.

    A few comparisons of whole columns take less time than many small sorts.
    """
    ranks = torch.zeros_like(rows, dtype=torch.int64)
    for j in range(rows.shape[1]):
        other = rows[:, j : j + 1]
        ranks[:, : j + 1] += other > rows[:, : j + 1]
        ranks[:, j + 1 :] += other >= rows[:, j + 1 :]
    return ranks
