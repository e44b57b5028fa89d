"""The command `chita report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chita.files.run_folder import PAGE_FILE
from chita.pruning.config import PruneConfig
from chita.pruning.option_declaration import defaults_of
from chita.report.console import show
from chita.report.page.render import write_page


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The output folder of prune, gradual, recover or bench."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help=f"The page; by default DIR/{PAGE_FILE}.")] = None,
) -> None:
    """Write a self-contained HTML page about a run: charts, layers, stages and masks."""
    page = write_page(folder, out, defaults=defaults_of(PruneConfig))
    show(f"the report is {page}")
