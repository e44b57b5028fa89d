"""The command `chita data get`."""

from __future__ import annotations

from typing import Annotated

import typer

from chita import data
from chita.data.sources import SOURCES
from chita.report.console import show
from chita.report.progress import step_bar


def get_command(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SOURCES)}.")],
) -> None:
    """Find or download a data set, check it, and print its folder."""
    with step_bar(f"fetching {name}") as progress:
        where = data.get(name, progress=progress)
    data.load(name)  # checks existing files, which may be damaged
    show(f"{name} is in {where}")
