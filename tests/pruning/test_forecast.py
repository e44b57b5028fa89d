"""The forecast of a run: its activities, and the estimates of its remaining time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext

import pytest

import chita
from chita.pruning.forecast import EVERY, LONG, PATIENCE, RECENT, SOLVE, Forecast
from chita.report.progress import RunBar
from tests.support.pruning import cut, points, tiny


class Recorded(RunBar):
    """A bar that records what it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []
        self.expected: list[float] = []
        self.notes: list[str] = []

    def describe(self, text: str) -> None:
        self.shown.append(text)

    def expect(self, seconds: float) -> None:
        super().expect(seconds)
        self.expected.append(seconds)

    def note(self, line: str) -> None:
        self.notes.append(line)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns a function that lets seconds pass."""
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    for module in ("chita.pruning.forecast", "chita.report.progress"):
        monkeypatch.setattr(f"{module}.perf_counter", lambda: now)
    return wait


def test_the_first_rows_give_the_time_of_all_stages(clock: Callable[[float], None]) -> None:
    bar = Recorded()
    forecast = Forecast(bar)
    forecast.extrapolate_stages([], 10)
    forecast.begin("gradients")
    clock(2.0)
    forecast.count_rows(20, 100)
    assert bar.left == pytest.approx(10 * (1 + SOLVE) * 10 - 2)  # 10 s for the rows of a stage


def test_the_preparations_before_the_first_row_are_not_extrapolated(
    clock: Callable[[float], None],
) -> None:
    bar = Recorded()
    forecast = Forecast(bar)
    forecast.extrapolate_stages([], 10)
    forecast.begin("gradients")
    clock(1.0)
    forecast.count_rows(1, 1000)
    assert bar.left is None  # otherwise 10 stages of 1000 s
    clock(0.1)
    forecast.count_rows(101, 1000)
    assert bar.left == pytest.approx(10 * (1 + SOLVE) * 1.0 - 1.1)  # 1 ms for a row
    forecast.count_rows(1, 1000)  # a second pass over the rows
    forecast.begin("gradients")
    clock(PATIENCE)
    forecast.count_rows(1, 1000)  # a slow network
    assert bar.left == pytest.approx(10 * (1 + SOLVE) * 1000 * PATIENCE - PATIENCE)


def test_a_part_of_the_first_stage_gives_the_time_of_all(clock: Callable[[float], None]) -> None:
    bar = Recorded()
    forecast = Forecast(bar)
    forecast.extrapolate_stages([], 3)
    clock(LONG)
    forecast.count_share(0.25, began=0.0)
    assert bar.left == pytest.approx(3 * 4 * LONG - LONG)
    for _ in range(2):
        forecast.announce("12 weights", "fewer make it shorter")
    assert len(bar.notes) == 1  # once
    forecast.extrapolate_stages([5.0], 2)
    forecast.count_share(0.5, began=LONG)
    assert bar.left == pytest.approx(10.0)  # finished stages count


def test_blocks_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Recorded()
    monkeypatch.setattr("chita.pruning.prune.run_bar", lambda show: nullcontext(bar))
    batches = cut(points(24), 6)
    chita.prune(tiny(), batches, sparsity=0.5, method="sparsegpt", batch=2)
    shown = [text.removeprefix("stage 1 of 1, 50.0% sparse: ") for text in bar.shown]
    assert shown[-4:] == ["reading samples", "block 1 of 2", "block 2 of 2", "held-out check"]
    assert bar.expected


def test_finished_stages_give_the_time_of_the_others(clock: Callable[[float], None]) -> None:
    bar = Recorded()
    forecast = Forecast(bar)
    forecast.extrapolate_stages([100.0, *[6.0] * RECENT], 5)
    assert bar.left == pytest.approx(30.0)
    clock(3.0)
    forecast.count_rows(1, 2)  # the finished stages are a better measure
    assert bar.left == pytest.approx(27.0)


def test_the_steps_of_a_training_correct_the_estimate(clock: Callable[[float], None]) -> None:
    bar = Recorded()
    forecast = Forecast(bar)
    forecast.expect(70.0)
    forecast.begin_training(100, 0.5)  # 50 s of the 70
    for _ in range(10):
        clock(1.0)  # the machine has become slower
        forecast.step()
    assert bar.left == pytest.approx(90 * 1.0 + 20)


@pytest.mark.parametrize(("seconds", "lines"), [(LONG / 2, 0), (2 * LONG, 1)])
def test_a_long_run_is_described(seconds: float, lines: int) -> None:
    bar = Recorded()
    forecast = Forecast(bar)
    forecast.expect(seconds)
    forecast.announce("300 weights", "fewer make it shorter")
    assert len(bar.notes) == lines
    for line in bar.notes:
        assert "300 weights" in line and "1:00" in line and "fewer" in line


def test_the_log_has_a_line_a_minute(
    clock: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "chita.pruning.forecast")
    forecast = Forecast()
    forecast.begin_stage(2, 7, 0.25)
    forecast.begin("gradients")
    for done in range(1, 41):  # 2 minutes
        clock(EVERY / 20)
        forecast.count_rows(done, 40)
    assert [record.getMessage() for record in caplog.records] == [
        "stage 2 of 7, 25.0% sparse: gradients"
    ] * 2
    caplog.clear()
    forecast.expect(600.0)
    forecast.begin_training(12, 10.0)
    for _ in range(6):
        clock(10.0)
        forecast.step()
    clock(EVERY)
    forecast.begin("held-out check")
    lines = [record.getMessage().split(": ", 1)[1] for record in caplog.records]
    assert lines == ["recovery, about 9:00 left", "held-out check, about 8:00 left"]


@pytest.mark.parametrize("recover", [True, False])
def test_a_run_shows_its_activities(recover: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Recorded()
    monkeypatch.setattr("chita.pruning.prune.Forecast", lambda _: Forecast(bar))
    options = {"budget": "200 steps"} if recover else {"stages": 4}
    chita.prune(tiny(), cut(points(400), 50), sparsity=0.9, recover=recover, **options)
    activities = {text.split(": ")[-1] for text in bar.shown}
    wanted = {"reading samples", "gradients", "solve", "held-out check"}
    assert wanted | ({"range test", "recovery"} if recover else set()) <= activities
    assert any("90.0% sparse" in text for text in bar.shown)
    assert bar.expected and all(seconds >= 0 for seconds in bar.expected if seconds == seconds)


def test_a_budget_in_seconds_is_the_first_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Recorded()
    monkeypatch.setattr("chita.pruning.prune.Forecast", lambda _: Forecast(bar))
    chita.prune(tiny(), cut(points(400), 50), sparsity=0.9, budget=3)
    assert 2 < bar.expected[0] <= 3
