"""The rule that holds samples out by their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.model.samples.keys import KEYS
from chita.model.samples.split import FEW, NOTHING_HELD_OUT, SampleSplit, split_keys

COUNTS = st.lists(st.integers(0, 20), min_size=1, max_size=3)


def split(keys: list[int], counts: list[int], *, size: int | None = None) -> SampleSplit:
    """Of keys that are all read, in two batches."""
    half = len(keys) // 2
    read = [torch.tensor(part, dtype=torch.int64) for part in (keys[:half], keys[half:])]
    return split_keys(read, counts, rest=0, size=size)


def parts(found: SampleSplit, keys: list[int]) -> list[int]:
    return found.part_of(torch.tensor(keys, dtype=torch.int64)).tolist()


@settings(deadline=None)
@given(st.sets(st.integers(0, KEYS - 1), max_size=FEW), COUNTS, st.booleans())
def test_distinct_keys_are_counted_exactly(
    distinct: set[int], counts: list[int], known: bool
) -> None:
    """Parts are filled one after the other, by the least keys first; the rest follows."""
    keys = list(distinct)
    found = split(keys, counts, size=len(keys) if known else None)
    expected = [part for part, count in enumerate(counts) for _ in range(count)][: len(keys)]
    expected += [len(counts)] * (len(keys) - len(expected))
    assert found.rest == len(counts)
    assert parts(found, sorted(keys)) == expected


@settings(deadline=None)
@given(st.lists(st.integers(0, 30).map(lambda i: i * (KEYS // 31)), max_size=FEW), COUNTS)
def test_equal_keys_stay_together(keys: list[int], counts: list[int]) -> None:
    """A part then has fewer samples than wanted, or those of a single key."""
    found = split(keys, counts)
    part_of = dict(zip(keys, parts(found, keys), strict=True))
    assert [part_of[key] for key in sorted(part_of)] == sorted(part_of.values())
    often = Counter(keys)
    for part, count in enumerate(counts):
        inside = [key for key in part_of if part_of[key] == part]
        assert len(inside) <= 1 or sum(often[key] for key in inside) <= count
        later = any(number > part for number in part_of.values())
        assert bool(inside) == bool(count and (later or inside))
        if count and later:  # and the next key would be too much
            following = min(key for key in part_of if part_of[key] > part)
            assert sum(often[key] for key in inside) + often[following] > count


@settings(deadline=None)
@given(st.lists(st.integers(0, KEYS - 1), max_size=50), COUNTS)
def test_every_key_has_a_part(keys: list[int], counts: list[int]) -> None:
    """Also those that were not there when the rule was made: the order is that of the keys."""
    found = split(keys, counts)
    assert list(found.bounds) == sorted(found.bounds)
    others = [0, KEYS // 3, KEYS - 1]
    assert all(0 <= part <= found.rest for part in parts(found, others))


def many(size: int, seed: int) -> Tensor:
    return torch.randint(KEYS, (size,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("times", [2.5, 3.9, 4.1, 20])
@pytest.mark.parametrize("counts", [(1,), (10, 7), (375, 375), (1500, 0, 900)])
@pytest.mark.parametrize("known", [True, False])
def test_of_large_data_each_part_gets_enough(
    times: float, counts: tuple[int, ...], known: bool
) -> None:
    """And so does the rest, of samples that are not all looked at."""
    needed = 2 * sum(counts)
    size = int(max(times * needed, 2 * FEW))
    for seed in range(5):
        keys = many(size, seed)
        read = Reading(keys)
        found = split_keys(read, counts, rest=sum(counts), size=size if known else None)
        inside = found.part_of(keys).bincount(minlength=len(counts) + 1).tolist()
        assert all(got >= count for got, count in zip(inside, (*counts, sum(counts)), strict=True))
        assert all((got == 0) == (count == 0) for got, count in zip(inside, counts, strict=False))
        assert read.given <= (0 if known else max(2 * needed, FEW) + 100)


class Reading:
    """Keys in batches of a hundred, counted as they are read."""

    def __init__(self, keys: Tensor) -> None:
        self.keys, self.given = keys, 0

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self.keys.split(100):
            self.given += len(batch)
            yield batch


def test_the_rule_for_large_data_does_not_depend_on_what_was_read() -> None:
    one, other = (
        split_keys(many(2000, seed).split(100), (20, 10), rest=100, size=None) for seed in (0, 1)
    )
    assert one.bounds == other.bounds


def test_excluded_keys_belong_nowhere() -> None:
    keys = torch.tensor([5, 6, 7, 6])
    assert SampleSplit(excluded=torch.tensor([6, 8])).part_of(keys).tolist() == [0, -1, 0, -1]
    assert SampleSplit((6,), torch.tensor([7])).part_of(keys).tolist() == [0, 1, -1, 1]
    assert NOTHING_HELD_OUT.part_of(keys).tolist() == [0, 0, 0, 0] == [NOTHING_HELD_OUT.rest] * 4
