"""The command `chita init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from chita.cli.prune import SPARSITY
from chita.cli.settings_file import SUFFIXES, render_settings
from chita.errors import ChitaError
from chita.files.atomic import write_whole
from chita.report.console import show


def init_command(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="The file, which must not exist, in an existing folder.")
    ] = Path("prune.yaml"),
) -> None:
    """Write a commented settings file with all options, which `chita prune FILE` runs."""
    if file.suffix not in SUFFIXES:
        raise ChitaError(f"the file to write must end in {' or '.join(SUFFIXES)}, got {file}")
    group: Any = context.find_root().command
    command = group.get_command(context, "prune")
    text = render_settings(command, str(file), {"network": "mlpnet", "sparsity": SPARSITY})
    if file.exists():
        raise ChitaError(f"{file} exists already, and would be lost: give another file")
    write_whole(file, text.encode())
    show(f"{file} is written: edit it, and run chita prune {file}")
