"""The command `chita export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from chita.errors import ChitaError
from chita.onnx_file import export_onnx
from chita.output import prepare_folder
from chita.source import open_source, random_images


def export_command(
    source: Annotated[str, typer.Argument(help="A checkpoint, the folder of a run or a network.")],
    out: Annotated[Path, typer.Argument(help="The file, which ends in .onnx.")],
    network: Annotated[
        str | None, typer.Option(help="What the checkpoint is of, if no run says so.")
    ] = None,
) -> None:
    """Write a network as an ONNX file for any batch size, checked against onnxruntime."""
    if out.suffix != ".onnx" or out.is_dir():
        raise ChitaError(f"OUT must be a file that ends in .onnx, got {out}")
    known, model = open_source(source, network)
    prepare_folder(out.parent)
    worst = export_onnx(model, random_images(known, 2), out)
    Console().print(
        f"{known.name} written to {out}: onnxruntime differs by {worst:.1e} of the largest output",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
