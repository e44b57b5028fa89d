"""Progress bars on standard error, which leave standard output to the results.

They are shown on a terminal, and in a notebook if ipywidgets is installed; a log file would get
empty lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import isfinite
from time import perf_counter
from typing import Any, Protocol

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn, track
from rich.progress_bar import ProgressBar
from rich.text import Text


class Counted(Protocol):
    """Items that can be iterated again, and their number."""

    def __iter__(self) -> Iterator[Any]: ...  # pragma: no cover

    def __len__(self) -> int: ...  # pragma: no cover


class Tracked:
    """Batches that show a bar on a terminal in every iteration.

    Args:
        batches: the batches, for any number of iterations.
        what: what is done with them.
    """

    def __init__(self, batches: Counted, what: str) -> None:
        self._batches, self._what = batches, what

    def __iter__(self) -> Iterator[Any]:
        console = Console(stderr=True)
        yield from track(
            self._batches,
            self._what,
            total=len(self),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __len__(self) -> int:
        return len(self._batches)


class RunBar:
    """A bar over the time of a run: what it does now, and about how long the rest takes.

    The remaining time counts down between two estimates.

    Args:
        progress: the bar of rich; None shows nothing.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress, self._began = progress, perf_counter()
        self._end: float | None = None
        if progress is not None:
            self._task = progress.add_task("starting", total=None, bar=self)

    def describe(self, text: str) -> None:
        """Show what is being done."""
        if self._progress is not None:
            self._progress.update(self._task, description=text)

    def expect(self, seconds: float) -> None:
        """Set about how long the rest of the run takes from now on."""
        self._end = perf_counter() + seconds if isfinite(seconds) else None

    def note(self, line: str) -> None:
        """Show a line above the bar."""
        if self._progress is not None and not self._progress.disable:
            self._progress.console.print(line, highlight=False, markup=False)

    @property
    def left(self) -> float | None:
        """About the remaining seconds; None before the first estimate."""
        return None if self._end is None else max(self._end - perf_counter(), 0.0)

    @property
    def share(self) -> float | None:
        """The share of the time that has passed; None before the first estimate."""
        if self.left is None:
            return None
        passed = perf_counter() - self._began
        return passed / max(passed + self.left, 1e-9)


class _TimeBar(ProgressColumn):
    """A bar whose length is the share of the time that has passed."""

    def render(self, task: Task) -> ProgressBar:
        """Draw the bar, which pulses before the first estimate."""
        share = task.fields["bar"].share
        total = None if share is None else 1.0
        return ProgressBar(total=total, completed=share or 0.0, width=30, pulse=share is None)


class _TimeLeft(ProgressColumn):
    """About the remaining time."""

    def render(self, task: Task) -> Text:
        """Write minutes and seconds."""
        left = task.fields["bar"].left
        text = "estimating the time" if left is None else f"about {format_time(left)} left"
        return Text(text, style="progress.remaining")


@contextmanager
def run_bar(*, show: bool) -> Iterator[RunBar]:
    """Show a bar over the time of a run."""
    columns = (TextColumn("{task.description}", markup=False), _TimeBar(), _TimeLeft())
    with _bar(*columns, show=show) as progress:
        yield RunBar(progress)


def format_time(seconds: float) -> str:
    """Write a time as minutes and seconds, such as 1:05, or with hours, such as 2:01:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextmanager
def step_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar; yields a function to call with the work done and in total (0 if unknown)."""
    with _bar(*Progress.get_default_columns(), show=True) as progress:
        task = progress.add_task(description, total=None)

        def update(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total or None)

        yield update


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Show one line that changes while work runs; yields a function that sets its text."""
    with Console(stderr=True).status("") as status:
        yield status.update


def _bar(*columns: ProgressColumn, show: bool) -> Progress:
    console = Console(stderr=True)
    shown = show and (console.is_terminal or (console.is_jupyter and _has_widgets()))
    return Progress(*columns, console=console, transient=True, disable=not shown)


def _has_widgets() -> bool:
    """Return whether a notebook can show a bar, for which rich needs ipywidgets."""
    return find_spec("ipywidgets") is not None
