from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.ranks import Ranks


class Several(Ranks):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 25), st.integers(1, 9))
def test_columns_are_shared_where_a_block_ends_nearest(
    layers: list[int], block_size: int, size: int
) -> None:
    layout = Layout(tuple(layers), block_size)
    blocks = layout.blocks
    assert blocks is not None
    ends = [0, *(stop for _, stop in blocks)]
    parts = [Division(Several(rank, size), layout) for rank in range(size)]
    for rank, bound in enumerate(parts[0].bounds):
        share = sum(layers) * rank // size
        assert bound == min(ends, key=lambda end: abs(end - share))
    own = [stop - start for part in parts for start, stop in part.layout.blocks or []]
    assert own == [stop - start for start, stop in blocks]
