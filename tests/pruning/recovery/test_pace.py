"""The pace of a run with recovery: the time of its stages, and fewer steps if it is late."""

from __future__ import annotations

import time

import pytest

from chita.pruning.recovery.pace import Clock, Pace
from tests.support.planned import planned, setup_of


def test_the_pace_counts_training_and_the_rest_apart() -> None:
    pace = Clock(100.0, 2, 30.0).pace(Clock(120.0, 6, 42.0), 24)
    assert (pace.step, pace.stage) == (0.5, 2.0)


def test_steps_are_not_shortened_by_the_clock() -> None:
    recovery = planned(setup_of())
    before = recovery.planned
    recovery.keep_pace(0, time.perf_counter() - 1000)
    recovery.keep_pace(1, time.perf_counter() - 1000)
    assert recovery.planned == before


def test_the_time_of_stages_follows_their_steps() -> None:
    assert Pace(0.5, 2.0).seconds([10, 20]) == 15 + 4


def test_the_expected_time_follows_the_pace() -> None:
    """Before the pace is known, it follows the costs of the range test."""
    recovery, began = planned(setup_of()), time.perf_counter()
    recovery.keep_pace(0, began)
    assert 0 < recovery.expected(4) < recovery.expected(0) < 50
    recovery.keep_pace(1, began - 50)  # the first of five stages took about 50 seconds
    assert recovery.expected(1) == pytest.approx(50 * 4, rel=0.1)


def test_a_run_that_is_late_is_shortened() -> None:
    recovery = planned(setup_of(budget=60))
    before = recovery.planned
    recovery.keep_pace(0, time.perf_counter())
    recovery.keep_pace(1, time.perf_counter())
    assert recovery.planned == before
    recovery.keep_pace(1, time.perf_counter() - 1000)  # no time is left
    assert recovery.planned.steps == [before.steps[0], *[1] * (len(before.steps) - 1)]
    recovery.keep_pace(1, time.perf_counter())  # the run has caught up
    assert recovery.planned == before
    recovery.keep_pace(1, time.perf_counter() - 1000)
    assert recovery.planned.sparsities == before.sparsities
