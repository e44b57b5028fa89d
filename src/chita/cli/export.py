"""The command `chita export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chita.cli.launch import open_source
from chita.cli.set_option import Arguments
from chita.cli.shared_options import ExampleData, OverwriteFile, Source, SourceNetwork
from chita.deploy.onnx_file import export_onnx
from chita.files.single_file import check_new, prepare_file
from chita.report.console import show
from chita.zoo.example import example_inputs


def export_command(
    source: Source,
    out: Annotated[
        Path, typer.Argument(help="The file, which must end in .onnx, in an existing folder.")
    ],
    network: SourceNetwork = None,
    arguments: Arguments = None,
    data_name: ExampleData = None,
    opset: Annotated[
        int | None,
        typer.Option(min=1, help="Version of the operators; DeepSparse reads 18."),
    ] = None,
    overwrite: OverwriteFile = False,
) -> None:
    """Write a network as an ONNX file for any batch size, checked against onnxruntime."""
    prepare_file(out, ".onnx")  # before the network is built
    check_new(out, overwrite=overwrite)
    trained = open_source(source, network, arguments, data_name)
    worst = export_onnx(trained.model.eval(), example_inputs(trained, 2), out, opset=opset)
    name = trained.network.name
    show(f"{name} written to {out}: onnxruntime differs by {worst:.1e} of the largest output")
