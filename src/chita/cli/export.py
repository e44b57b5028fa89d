"""The command `chita export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chita.cli.shared_options import Source, SourceNetwork
from chita.deploy.onnx_file import export_onnx
from chita.report.console import show
from chita.zoo.trained import find_trained, open_trained, random_images


def export_command(
    source: Source,
    out: Annotated[
        Path, typer.Argument(help="The file, which must end in .onnx, in an existing folder.")
    ],
    network: SourceNetwork = None,
) -> None:
    """Write a network as an ONNX file for any batch size, checked against onnxruntime."""
    known, checkpoint = find_trained(source, network)
    show(f"{known.name} from {checkpoint}")
    model = open_trained(known, checkpoint, with_data=False).model
    worst = export_onnx(model.eval(), random_images(known, 2), out)
    show(f"{known.name} written to {out}: onnxruntime differs by {worst:.1e} of the largest output")
