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


@contextmanager
def stage_bar(stages: int, *, show: bool) -> Iterator[Callable[[float], None]]:
    """Show a bar over the stages; yields a function to call after each with its sparsity."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with _bar(*columns, show=show) as progress:
        task = progress.add_task("pruning", total=stages)

        def advance(sparsity: float) -> None:
            progress.update(task, advance=1, description=f"pruning, {sparsity:.1%} sparse")

        yield advance


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
