"""The progress bar."""

from __future__ import annotations

import pytest

import chita
from chita.report.progress import RunBar, Tracked, _bar, format_time, run_bar, step_bar
from tests.support.pruning import points, tiny


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the captured standard error pass for a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
def test_a_bar_on_standard_error_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with run_bar(show=True) as bar:
        bar.expect(3600)
        bar.describe("stage 2 of 7, 87.5% sparse: solve")
        bar.note("[1] 300 weights")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "87.5% sparse: solve" in captured.err
    assert "1:00:00 left" in captured.err
    assert "[1] 300 weights" in captured.err


def test_the_remaining_time_counts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("chita.report.progress.perf_counter", lambda: now)
    bar = RunBar()
    assert bar.left is None and bar.share is None
    now = 10.0
    bar.expect(30.0)
    assert bar.left == 30.0 and bar.share == 0.25
    now = 25.0
    assert bar.left == 15.0 and bar.share == 0.625
    now = 50.0
    assert bar.left == 0.0 and bar.share == 1.0
    bar.expect(float("inf"))
    assert bar.left is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (125, "2:05"), (7265, "2:01:05")]
)
def test_a_time_in_words(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


def test_nothing_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    with run_bar(show=True) as bar:
        bar.expect(2)
        bar.note("300 weights")
    with step_bar("reading") as update:
        update(1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with run_bar(show=False) as bar:
        bar.expect(2)
        bar.note("300 weights")
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("progress", [True, False])
def test_pruning_shows_its_stages(progress: bool, capsys: pytest.CaptureFixture[str]) -> None:
    chita.prune(
        tiny(),
        [points(24)],
        sparsity=0.9,
        batch=2,
        ridge=0.1,
        stages=3,
        progress=progress,
        recover=False,
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("stage 3 of 3, 90.0% sparse" in captured.err) == progress


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_shows_a_bar_if_it_can(widgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("chita.report.progress.find_spec", lambda _: object() if widgets else None)
    assert _bar(show=True).disable != widgets
    assert _bar(show=False).disable


def test_tracked_batches_are_iterated_again_without_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tracked = Tracked([1, 2, 3], "test")
    assert [list(tracked), list(tracked)] == [[1, 2, 3], [1, 2, 3]] and len(tracked) == 3
    assert capsys.readouterr() == ("", "")
