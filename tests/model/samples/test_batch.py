"""Batches of samples."""

from __future__ import annotations

import pytest
import torch

from chita.model.samples.batch import Batch, first_samples, parse_batch, tensors_of


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
