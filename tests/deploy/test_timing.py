"""The clock, and who has won."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.deploy.timing import Timing, race, winner

CPU = torch.device("cpu")
TURN = st.floats(1e-6, 1.0)


@pytest.mark.usefixtures("fake_clock")
def test_a_race_sees_how_long_each_takes() -> None:
    ways = {"short": partial(time.sleep, 0.002), "long": partial(time.sleep, 0.006)}
    found = race(ways, CPU, budget=0.05)
    assert found["short"].median == pytest.approx(0.002, abs=2e-5)
    assert found["long"].median == pytest.approx(0.006, abs=2e-5)
    assert len(found["short"].seconds) == len(found["long"].seconds) >= 11
    assert winner(found, "long") == "short"
    assert winner(found, "short") is None


@pytest.mark.usefixtures("fake_clock")
def test_each_turn_holds_all_ways() -> None:
    """A machine that becomes slow half-way is slow for all of them."""
    calls: list[str] = []
    ways = {name: partial(_slower_and_slower, calls, name) for name in ("a", "b")}
    found = race(ways, CPU, budget=0.01)
    low, median, high = found["a"].gains(found["b"])
    assert 0.5 < low <= median <= high < 2
    assert found["a"].spread > 0.1 * found["a"].median


def _slower_and_slower(calls: list[str], name: str) -> None:
    calls.append(name)
    time.sleep(1e-4 * len(calls))


@pytest.mark.usefixtures("fake_clock")
def test_long_calls_are_repeated_less_often() -> None:
    calls: list[str] = []

    def long() -> None:
        calls.append("long")
        time.sleep(2.0)

    found = race({"long": long}, CPU)
    assert found["long"].median == pytest.approx(2.0, abs=1e-4)
    assert len(found["long"].seconds) == 5 and len(calls) == 6


@given(st.lists(st.tuples(TURN, TURN, TURN), min_size=2, max_size=20))
def test_the_winner_is_never_slower(turns: list[tuple[float, float, float]]) -> None:
    names = ("dense", "one", "other")
    timings = {name: Timing(tuple(turn[i] for turn in turns)) for i, name in enumerate(names)}
    best = winner(timings, "dense")
    if best is not None:
        assert timings[best].median < timings["dense"].median
        faster = sum(mine < dense for mine, dense in zip(
            timings[best].seconds, timings["dense"].seconds, strict=True
        ))  # fmt: skip
        assert faster >= 0.5 * len(turns)


def test_a_gain_within_the_spread_does_not_win() -> None:
    dense = Timing((1.0,) * 12)
    noisy = Timing((0.8, 1.3, 0.9, 1.2, 0.7, 1.1, 0.9, 1.4, 0.8, 1.2, 0.9, 0.9))
    assert noisy.median < dense.median and not noisy.beats(dense)
    steady = Timing((0.98, 0.99) * 6)
    assert steady.beats(dense) and not dense.beats(steady)
    assert winner({"dense": dense, "noisy": noisy, "steady": steady}, "dense") == "steady"


def test_quartiles_in_json() -> None:
    assert Timing((1.0, 2.0, 3.0)).to_dict() == {
        "low": pytest.approx(1.0),
        "median": pytest.approx(2.0),
        "high": pytest.approx(3.0),
    }
