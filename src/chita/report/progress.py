"""Progress bars on standard error, which leave standard output to the results.

They are shown only on a terminal, because a log file would get empty lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


class StageBar:
    """A bar over the stages of a run, or over their training steps.

    Args:
        progress: the bar of rich.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("pruning", total=None)

    def begin(self, total: int) -> None:
        """Set the number of units of work; until then the bar shows no estimate."""
        self._progress.update(self._task, total=total)

    def describe(self, text: str) -> None:
        """Show what is being done."""
        self._progress.update(self._task, description=text)

    def advance(self, units: int = 1) -> None:
        """Count finished units of work."""
        self._progress.advance(self._task, units)


@contextmanager
def stage_bar(*, show: bool) -> Iterator[StageBar]:
    """Show a bar over the work of a run."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with _bar(*columns, show=show) as progress:
        yield StageBar(progress)


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
    shown = show and console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=not shown)
