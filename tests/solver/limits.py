"""Constraints and what they mean, spelled out over all subsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import torch
from hypothesis import strategies as st

from chita.solver.constraints.n_of_m import Groups


class Limits(NamedTuple):
    """Groups in plain numbers, and a k that they can meet."""

    ids: list[int]
    least: list[int]
    most: list[int]
    k: int

    @property
    def groups(self) -> Groups:
        return Groups(*(torch.tensor(part) for part in self[:3]))

    def allow(self, support: list[int]) -> bool:
        counts = Counter(self.ids[i] for i in support)
        limits = zip(self.least, self.most, strict=True)
        return len(support) == self.k and all(
            low <= counts[group] <= high for group, (low, high) in enumerate(limits)
        )

    def supports(self) -> Iterator[list[int]]:
        """All that are allowed."""
        subsets = (list(subset) for subset in combinations(range(len(self.ids)), self.k))
        return filter(self.allow, subsets)


@st.composite
def limits(draw: st.DrawFn, p: int | None = None) -> Limits:
    """Groups of any sizes, in any order of the columns, with limits that leave some room or none.

    Fixed counts (least = most) and N:M (most = size) are among them.
    """
    length = p or draw(st.integers(1, 9))
    ids = draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))
    present = sorted(set(ids))
    ids = [present.index(group) for group in ids]
    sizes = [ids.count(group) for group in range(len(present))]
    least = [draw(st.integers(0, size)) for size in sizes]
    most = [draw(st.integers(low, size)) for low, size in zip(least, sizes, strict=True)]
    return Limits(ids, least, most, draw(st.integers(sum(least), sum(most))))
