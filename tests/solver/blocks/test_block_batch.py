"""Batches of blocks: what goes in comes out, whatever the sizes."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.methods.surgeon_inverse import all_blocks
from chita.solver.algorithm import Layout
from chita.solver.blocks.block_batch import BlockBatch, block_batches
from chita.solver.blocks.independent import cut_blocks


@given(
    layers=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    block_size=st.none() | st.integers(1, 20),
)
def test_all_weights_are_in_some_batch_in_their_order(
    layers: list[int], block_size: int | None
) -> None:
    blocks = all_blocks(Layout(tuple(layers), block_size))
    batches = list(block_batches(blocks))
    assert [block for batch in batches for block in batch.blocks] == blocks
    entries = torch.arange(1, sum(layers) + 1)
    back = torch.cat([batch.unstack(batch.stack(entries)) for batch in batches])
    assert torch.equal(back, entries)


def test_equal_blocks_are_a_view_and_others_are_padded_with_zeros() -> None:
    columns = torch.arange(1.0, 15.0).view(7, 2)
    equal = BlockBatch(((1, 3), (3, 5))).stack(columns)
    assert equal.shape == (2, 2, 2)
    assert equal.data_ptr() == columns[1:].data_ptr()
    unequal = BlockBatch(((2, 4), (4, 7))).stack(columns)
    assert unequal.shape == (2, 3, 2)
    assert torch.equal(unequal[0], torch.cat([columns[2:4], torch.zeros(1, 2)]))
    assert torch.equal(unequal[1], columns[4:7])


def test_blocks_of_one_layer_go_together_as_far_as_a_batch_reaches() -> None:
    blocks = all_blocks(Layout((41, 3), 9))  # sizes 9, 8, 8, 8, 8 and 3
    assert [len(batch.blocks) for batch in block_batches(blocks, 30)] == [1, 3, 1, 1]
    assert [len(batch.blocks) for batch in block_batches(blocks, 30, 0.75)] == [3, 2, 1]


@given(
    layers=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    columns=st.integers(1, 200),
    alike=st.sampled_from([0.5, 0.75, 1.0]),
)
def test_a_batch_is_within_its_bounds_and_as_long_as_they_let_it(
    layers: list[int], columns: int, alike: float
) -> None:
    batches = list(block_batches(cut_blocks(layers, 20), columns, alike))

    def fits(sizes: list[int]) -> bool:
        return min(sizes) >= alike * max(sizes) and len(sizes) * max(sizes) <= columns

    assert all(len(batch.blocks) == 1 or fits(batch.sizes) for batch in batches)
    assert not any(fits(one.sizes + two.sizes[:1]) for one, two in pairwise(batches))


def test_without_blocks_there_are_no_batches() -> None:
    assert list(block_batches([])) == []
