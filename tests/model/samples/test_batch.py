"""Batches of samples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.model.samples.batch import Batch, first_samples, parse_batch, regrouped, tensors_of


def numbered(*sizes: int) -> list[Batch]:
    parts = torch.arange(sum(sizes)).split(list(sizes))
    return [parse_batch(n, (part.double(), part)) for n, part in enumerate(parts)]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 9, 20])
def test_the_first_samples_are_exactly_so_many(count: int) -> None:
    found = list(first_samples(numbered(3, 1, 5), count))
    seen = [int(x) for batch in found for x in tensors_of(batch.content)[0]]
    assert seen == list(range(min(count, 9)))
    assert sum(batch.size for batch in found) == len(seen)


def test_without_a_limit_all_batches_follow() -> None:
    assert [batch.size for batch in first_samples(numbered(3, 1), float("inf"))] == [3, 1]


def test_a_change_of_the_tensors_keeps_the_samples() -> None:
    batch = numbered(3)[0].map(lambda tensor: 2 * tensor)
    assert batch.size == 3
    assert [tensor.tolist() for tensor in tensors_of(batch.content)] == [[0, 2, 4], [0, 2, 4]]


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(1, 6))
def test_regrouped_samples_keep_their_order_in_batches_of_one_size(
    sizes: list[int], size: int
) -> None:
    found = list(regrouped(numbered(*sizes), size))
    for place in (0, 1):
        seen = [int(x) for batch in found for x in tensors_of(batch.content)[place]]
        assert seen == list(range(sum(sizes)))
    assert all(batch.size == size for batch in found[:-1])
    assert all(0 < batch.size <= size for batch in found[-1:])


def test_samples_of_other_shapes_are_not_joined() -> None:
    def shaped(*shapes: tuple[int, int]) -> list[Batch]:
        return [parse_batch(0, (torch.zeros(n, d), torch.zeros(n))) for n, d in shapes]

    found = regrouped(shaped((3, 4), (3, 4), (1, 5), (2, 4)), 4)
    assert [tuple(tensors_of(batch.content)[0].shape) for batch in found] == [
        (4, 4),
        (2, 4),
        (1, 5),
        (2, 4),
    ]
