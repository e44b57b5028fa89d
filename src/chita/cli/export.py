"""The command `chita export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chita.cli.source import open_source, random_images
from chita.cli.trained import Source, SourceNetwork
from chita.deploy.onnx_file import export_onnx
from chita.report.console import say


def export_command(
    source: Source,
    out: Annotated[
        Path, typer.Argument(help="The file, which ends in .onnx, in a folder that is there.")
    ],
    network: SourceNetwork = None,
) -> None:
    """Write a network as an ONNX file for any batch size, checked against onnxruntime."""
    known, model = open_source(source, network)
    worst = export_onnx(model, random_images(known, 2), out)
    say(f"{known.name} written to {out}: onnxruntime differs by {worst:.1e} of the largest output")
