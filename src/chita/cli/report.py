"""The command `chita report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chita.cli.shared_options import OverwriteFile
from chita.files.run_folder import PAGE_FILE
from chita.files.single_file import check_new
from chita.pruning.config import PruneConfig
from chita.pruning.options.declaration import defaults_of
from chita.report.console import show
from chita.report.page.render import is_page, write_page


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The output folder of prune, gradual, recover or bench."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help=f"The page; by default DIR/{PAGE_FILE}.")] = None,
    overwrite: OverwriteFile = False,
) -> None:
    """Write a self-contained HTML page about a run: charts, layers, stages and masks."""
    given = out or folder / PAGE_FILE
    if not is_page(given):
        check_new(given, overwrite=overwrite)
    page = write_page(folder, out, defaults=defaults_of(PruneConfig))
    show(f"the report is {page}")
