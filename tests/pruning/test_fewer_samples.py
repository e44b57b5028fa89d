"""Fewer samples for a network that is slow on its machine."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.model.samples.batch import Batch
from chita.model.samples.stream import SampleStream
from chita.pruning.budget import BUDGETS, parse_budget
from chita.pruning.calibration import Calibration
from chita.pruning.fewer_samples import LEAST_CHECKED, fewer_samples

FAST = BUDGETS["fast"]


def samples(batch: int = 64, rows: int = 16) -> Calibration:
    held_out = [Batch(((torch.arange(100.0),), torch.zeros(100)), 100) for _ in range(3)]
    return Calibration(SampleStream(()), rows, batch, held_out, [], 128)


def checked(data: Calibration) -> int:
    return sum(batch.size for batch in data.held_out)


def test_a_fast_network_keeps_all_samples() -> None:
    found = fewer_samples(samples(), FAST, 1e-4, keep_batch=False)
    assert (checked(found), found.batch, found.rows) == (300, 64, 16)


def test_a_slow_network_keeps_the_least_samples() -> None:
    found = fewer_samples(samples(), FAST, 0.1, keep_batch=False)
    assert (checked(found), found.batch, found.rows) == (LEAST_CHECKED, 8, 16)
    first = found.held_out[0].content
    assert isinstance(first, tuple)
    assert torch.equal(first[0][0], torch.arange(float(LEAST_CHECKED)))


def test_a_number_of_steps_does_not_depend_on_the_time() -> None:
    found = fewer_samples(samples(), parse_budget("budget", "60 steps"), 100.0, keep_batch=False)
    assert (checked(found), found.batch) == (300, 64)


def test_a_given_batch_is_kept() -> None:
    assert fewer_samples(samples(), FAST, 0.1, keep_batch=True).batch == 64


@given(st.integers(1, 128), st.floats(1e-6, 1e3), st.sampled_from(sorted(BUDGETS)))
def test_mini_batches_are_divided_into_whole_parts(m: int, seconds: float, name: str) -> None:
    found = fewer_samples(samples(batch=m), BUDGETS[name], seconds, keep_batch=False)
    assert m % found.batch == 0
    assert LEAST_CHECKED <= checked(found) <= 300


@given(st.floats(1e-6, 1e3))
def test_a_larger_budget_keeps_at_least_as_many(seconds: float) -> None:
    found = [fewer_samples(samples(), BUDGETS[n], seconds, keep_batch=False) for n in BUDGETS]
    assert [checked(each) for each in found] == sorted(checked(each) for each in found)
    assert [each.batch for each in found] == sorted(each.batch for each in found)
