"""The progress bar."""

from __future__ import annotations

import pytest

import chita
from chita.report.progress import stage_bar, step_bar
from tests.support.pruning import points, tiny


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the captured standard error pass for a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
def test_a_bar_on_standard_error_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with stage_bar(show=True) as bar:
        bar.begin(2)
        bar.advance()
        bar.describe("pruning, 87.5% sparse")
        bar.advance()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "87.5% sparse" in captured.err
    assert "2/2" in captured.err


def test_nothing_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    with stage_bar(show=True) as bar:
        bar.begin(2)
        bar.advance()
    with step_bar("reading") as update:
        update(1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with stage_bar(show=False) as bar:
        bar.begin(2)
        bar.advance()
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
    assert ("3/3" in captured.err and "90.0% sparse" in captured.err) == progress
