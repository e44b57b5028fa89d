"""The samples of recovery: passes, shares of ranks, shapes and sizes of batches."""

from __future__ import annotations

from itertools import chain, islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.model.samples.batch import Batch
from chita.model.seeds import generator_of
from chita.pruning.recovery import pool as pool_module
from chita.pruning.recovery.pool import BATCH, LEAST_BATCH, SamplePool, read_pool, trained_at_once
from chita.solver.ranks import ALONE, Ranks, joined_ranks
from tests.support.gloo import on_ranks
from tests.support.messages import says

CPU = torch.device("cpu")


class Rank(Ranks):
    """One of several ranks, which draw without a word to each other."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def samples(count: int, *shape: int, first: int = 0) -> Batch:
    """Samples whose inputs and targets have their number in every entry."""
    numbers = torch.arange(first, first + count, dtype=torch.float64)
    inputs = numbers.view(-1, *[1] * len(shape)).expand(-1, *shape).clone()
    return Batch(((inputs,), numbers.long()), count)


def numbers_of(batch: Batch) -> list[int]:
    """The numbers of the samples; the targets belong to the inputs."""
    assert isinstance(batch.content, tuple)
    (inputs,), targets = batch.content
    assert torch.equal(inputs.flatten(1)[:, 0].long(), targets)
    return [int(number) for number in targets.tolist()]


def drawn(pool: SamplePool, batches: int, ranks: Ranks = ALONE, key: int = 0) -> list[list[int]]:
    return [numbers_of(batch) for batch in islice(pool.draw(generator_of(key), ranks), batches)]


@given(st.integers(1, 20), st.integers(1, 9))
@settings(deadline=None)
def test_a_pass_has_every_sample_once(batches: int, at_once: int) -> None:
    pool = SamplePool([samples(batches * at_once, 2)], at_once)
    steps = pool.samples // pool.batch
    found = drawn(pool, 3 * steps)
    for start in range(0, 3 * steps, steps):
        passed = [number for batch in found[start : start + steps] for number in batch]
        assert len(passed) == len(set(passed)) == steps * pool.batch
        if pool.samples % pool.batch == 0:
            assert sorted(passed) == list(range(pool.samples))


def test_every_pass_has_another_order_and_leaves_out_other_samples() -> None:
    pool = SamplePool([samples(100, 2)], 100)
    assert pool.batch == 16
    found = drawn(pool, 5 * 6)
    passes = [list(chain(*found[i : i + 6])) for i in range(0, 30, 6)]
    assert len({tuple(each) for each in passes}) == 5
    assert len({frozenset(range(100)) - frozenset(each) for each in passes}) == 5


def test_the_key_determines_the_order() -> None:
    pool = SamplePool([samples(64, 2), samples(32, 3, first=64)], 16)
    assert drawn(pool, 30, key=5) == drawn(pool, 30, key=5)
    assert drawn(pool, 30, key=5) != drawn(pool, 30, key=6)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_shares_of_the_ranks_are_disjoint_and_cover_the_batch(size: int) -> None:
    pool = SamplePool([samples(24 * 8, 2)], 24)
    assert pool.batch == 24
    whole = drawn(pool, 20)
    shares = [drawn(pool, 20, Rank(rank, size)) for rank in range(size)]
    for number, batch in enumerate(whole):
        assert list(chain(*(share[number] for share in shares))) == batch
        assert {len(share[number]) for share in shares} == {24 // size}


def test_more_ranks_than_samples_still_have_one_each() -> None:
    pool = SamplePool([samples(2, 2)], 2)
    for rank in range(5):
        assert [len(batch) for batch in drawn(pool, 4, Rank(rank, 5))] == [1] * 4


@pytest.mark.parametrize(
    ("count", "at_once", "expected"),
    [
        (1, 256, 1),
        (5, 256, 5),
        (20, 256, LEAST_BATCH),
        (400, 256, 50),  # eight steps in a pass
        (10**4, 256, BATCH),
        (10**4, 10, 10),
    ],
)
def test_few_samples_make_small_batches(count: int, at_once: int, expected: int) -> None:
    assert SamplePool([samples(count, 1)], at_once).batch == expected


def test_samples_given_one_by_one_are_trained_on_together_unless_they_are_tokens() -> None:
    assert trained_at_once(1, samples(1, 3)) == LEAST_BATCH
    assert trained_at_once(64, samples(1, 3)) == 64
    tokens = Batch(((torch.zeros(1, 5, dtype=torch.int64),), ()), 1)
    assert trained_at_once(1, tokens) == 1


def read(batches: list[Batch], at_once: int = 8) -> SamplePool:
    return read_pool(batches, lambda batch: batch, at_once=at_once, place=CPU)


def test_samples_of_different_shapes_are_not_joined() -> None:
    given_batches = [samples(9, 2), samples(4, 3, first=9), samples(7, 2, first=13)]
    pool = read(given_batches)
    assert (pool.samples, pool.uniform) == (20, False)
    steps = 16 // 8 + 1
    found = list(islice(pool.draw(generator_of(0)), steps))
    widths = sorted((batch.content[0][0].shape[1], batch.size) for batch in found)  # type: ignore[index]
    assert widths == [(2, 8), (2, 8), (3, 4)]
    passed = [number for batch in found for number in numbers_of(batch)]
    assert len(passed) == len(set(passed))


def test_samples_are_converted_in_small_pieces() -> None:
    sizes = []

    def convert(batch: Batch) -> Batch:
        sizes.append(batch.size)
        assert isinstance(batch.content, tuple)
        (inputs,), targets = batch.content
        return Batch(((2 * inputs,), 2 * targets), batch.size)

    pool = read_pool([samples(20, 2)], convert, at_once=8, place=CPU)
    assert sizes == [8, 8, 4]
    assert pool.uniform
    assert sorted(numbers_of(pool.example)) == list(range(0, 40, 2))


def test_what_does_not_fit_into_memory_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    size = samples(10, 2).content[0][0].nbytes + 80  # type: ignore[index]
    monkeypatch.setattr(pool_module, "free_bytes", lambda place: 2.5 * size / 0.25)
    pool = read([samples(10, 2, first=10 * n) for n in range(9)], 10)
    assert pool.samples == 30
    assert says(caplog.text, 30)


def drawn_on_rank(rank: int) -> tuple[int, list[list[int]]]:
    """The pool of a rank that sees memory for 5 or 11 batches of 10 samples."""
    size = samples(10, 2).content[0][0].nbytes + 80  # type: ignore[index]
    free = (5 + 6 * rank) * size / pool_module.MEMORY_SHARE
    pool_module.free_bytes = lambda place: int(free)  # type: ignore[attr-defined]
    with joined_ranks() as ranks:
        pool = read_pool(
            [samples(10, 2, first=10 * n) for n in range(9)],
            lambda batch: batch,
            at_once=10,
            place=CPU,
            ranks=ranks,
        )
        return pool.samples, drawn(pool, 3, ranks)


@pytest.mark.slow
def test_ranks_have_as_many_samples_as_fit_on_each() -> None:
    """Two ranks share the memory: 2.5 batches fit on one of them, and 5.5 on the other."""
    outcomes = on_ranks(2, drawn_on_rank)
    assert not any(isinstance(each, BaseException) for each in outcomes), outcomes
    (count, first), (other_count, second) = outcomes
    assert count == other_count == 30
    whole = [sorted([*one, *other]) for one, other in zip(first, second, strict=True)]
    assert sorted(chain(*whole)) == list(range(30))


def test_a_batch_is_a_copy() -> None:
    given_batch = samples(16, 2)
    pool = SamplePool([given_batch], 16)
    first: Tensor = next(pool.draw(generator_of(0))).content[0][0]  # type: ignore[index]
    first.fill_(-1)
    assert sorted(numbers_of(given_batch)) == list(range(16))
