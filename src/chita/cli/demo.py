"""The command `chita demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chita.files.run_folder import prepare_folder
from chita.paper.demo import run_demo


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/demo"),
) -> None:
    """Compare magnitude, CHITA and CHITA++ on the embedded MLPNet."""
    prepare_folder(out)
    run_demo(out)
