"""The range test finds the best rate of its grid, and avoids those that diverge."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.pruning.recovery.range_test import (
    HALF_DECADES,
    LEAST_TEST_STEPS,
    SLOWEST,
    TEST_STEPS,
    find_rate,
    steps_of_test,
)

RATES = [10 ** (step / 2) for step in HALF_DECADES]


@given(st.integers(0, len(RATES) - 1), st.lists(st.floats(0.01, 1), min_size=8, max_size=8))
def test_the_bottom_of_a_valley_is_found(best: int, slopes: list[float]) -> None:
    losses = [sum(slopes[min(i, best) : max(i, best)]) for i in range(len(RATES))]
    tried: list[float] = []

    def loss_at(rate: float) -> float:
        tried.append(rate)
        return losses[_index(rate)]

    assert find_rate(loss_at, 0.0) == pytest.approx(RATES[best])
    assert len(tried) == len(set(tried))  # a test takes time


@given(st.integers(0, len(RATES)), st.sampled_from([math.nan, math.inf, -math.inf]))
@settings(deadline=None)
def test_rates_that_diverge_are_not_chosen(finite: int, bad: float) -> None:
    """The loss falls up to the rate at which it diverges."""
    found = find_rate(lambda rate: 1 / rate if _index(rate) < finite else bad, 0.0)
    if finite == 0:
        assert found is None
    else:
        assert found == pytest.approx(RATES[finite - 1])


def test_equal_losses_give_the_middle() -> None:
    assert find_rate(lambda rate: 1.0, 1.0) == pytest.approx(0.01)


def test_the_slowest_rate_is_the_least_of_the_grid() -> None:
    assert find_rate(lambda rate: rate, 0.0) == pytest.approx(SLOWEST)


@pytest.mark.parametrize(("share", "larger"), [(0.9, True), (0.8, False)])
def test_a_larger_rate_that_gains_almost_as_much_is_preferred(share: float, larger: bool) -> None:
    """The best loss is 1, after 3 before; the next rate gains a share of this."""
    gains = [0.5, 1.0, 2.0, 2 * share, 0.1, math.nan, math.nan]
    found = find_rate(lambda rate: 3 - gains[_index(rate)], 3.0)
    assert found == pytest.approx(RATES[3 if larger else 2])


def _index(rate: float) -> int:
    return min(range(len(RATES)), key=lambda i: abs(math.log(RATES[i] / rate)))


@pytest.mark.parametrize(
    ("steps", "seconds", "step_seconds", "found"),
    [
        (4000, math.inf, 100.0, TEST_STEPS),  # no limit of time
        (60, math.inf, 0.1, 10),
        (5, math.inf, 0.1, LEAST_TEST_STEPS),
        (4000, 120.0, 0.01, TEST_STEPS),
        (4000, 120.0, 0.25, 10),  # all rates together must not use up the time
        (4000, 120.0, 60.0, LEAST_TEST_STEPS),
    ],
)
def test_the_test_is_shorter_if_the_budget_is_small(
    steps: int, seconds: float, step_seconds: float, found: int
) -> None:
    assert steps_of_test(steps, seconds, step_seconds) == found
