"""The range test finds the best rate of its grid, and avoids those that diverge."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.pruning.recovery.rate import HALF_DECADES, SLOWEST, find_rate

RATES = [10 ** (step / 2) for step in HALF_DECADES]


@given(st.integers(0, len(RATES) - 1), st.lists(st.floats(0.01, 1), min_size=8, max_size=8))
def test_the_bottom_of_a_valley_is_found(best: int, slopes: list[float]) -> None:
    losses = [sum(slopes[min(i, best) : max(i, best)]) for i in range(len(RATES))]
    tried: list[float] = []

    def loss_at(rate: float) -> float:
        tried.append(rate)
        return losses[_index(rate)]

    assert find_rate(loss_at) == pytest.approx(RATES[best])
    assert len(tried) == len(set(tried))  # a test takes time


@given(st.integers(0, len(RATES)), st.sampled_from([math.nan, math.inf, -math.inf]))
@settings(deadline=None)
def test_rates_that_diverge_are_not_chosen(finite: int, bad: float) -> None:
    """The loss falls up to the rate at which it diverges."""
    found = find_rate(lambda rate: 1 / rate if _index(rate) < finite else bad)
    if finite == 0:
        assert found is None
    else:
        assert found == pytest.approx(RATES[finite - 1])


def test_equal_losses_give_the_middle() -> None:
    assert find_rate(lambda rate: 1.0) == pytest.approx(0.01)


def test_the_slowest_rate_is_the_least_of_the_grid() -> None:
    assert find_rate(lambda rate: rate) == pytest.approx(SLOWEST)


def _index(rate: float) -> int:
    return min(range(len(RATES)), key=lambda i: abs(math.log(RATES[i] / rate)))
