"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from chita.data import NAMES
from chita.zoo import NETWORKS
from chita.zoo.trained import IMAGE_FOLDER

NetworkName = Annotated[
    str, typer.Argument(metavar="MODEL", help=f"A network: {', '.join(NETWORKS)}.")
]
DataName = Annotated[
    str | None, typer.Option("--data", help=f"One of {', '.join(NAMES)}, or {IMAGE_FOLDER}DIR.")
]
Source = Annotated[str, typer.Argument(help="A checkpoint, a run folder or a network.")]
SourceNetwork = Annotated[
    str | None,
    typer.Option("--network", help="The network of a checkpoint outside a run folder."),
]
Include = Annotated[
    list[str] | None, typer.Option(help="Glob of parameter names to prune (repeatable).")
]
Exclude = Annotated[
    list[str] | None, typer.Option(help="Glob of parameter names to leave dense (repeatable).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON at the end.")]
Device = Annotated[
    str | None,
    typer.Option(help="Device such as cpu or cuda; by default a GPU if there is one."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
ValSplit = Annotated[
    float | None,
    typer.Option(
        help="Share of the images to test on, for an image folder without train/ and val/."
    ),
]
