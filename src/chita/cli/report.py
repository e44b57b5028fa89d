"""The command `chita report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chita.report.console import show
from chita.report.page.render import PAGE, write_page


def report_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The output folder of prune, gradual or bench.")
    ],
    out: Annotated[Path | None, typer.Option(help=f"The page; by default DIR/{PAGE}.")] = None,
) -> None:
    """Write a self-contained HTML page about a run: charts, layers, stages and masks."""
    show(f"the report is {write_page(folder, out)}")
