"""The commands `chita pack`, `chita unpack` and `chita inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from chita.cli.shared_options import OverwriteFile
from chita.files.checkpoint import read_checkpoint, save_checkpoint
from chita.files.describe import FileReport, describe
from chita.files.packed.load import load
from chita.files.packed.write import save
from chita.files.run_folder import model_file, verified
from chita.files.single_file import check_new, prepare_file
from chita.report.console import show, show_json


def pack_command(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A checkpoint or a run folder.")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The packed file, in an existing folder.")
    ],
    overwrite: OverwriteFile = False,
) -> None:
    """Store a pruned checkpoint without its zeros."""
    source = model_file(source)
    tensors = read_checkpoint(source)
    before = source.stat().st_size  # OUT may be the same file
    prepare_file(out, ".safetensors")
    check_new(out, overwrite=overwrite, source=source)
    save(tensors, out)
    after = out.stat().st_size
    show(f"{out}: {after:,} bytes, {after / before:.4f} of the {before:,} of {source}")


def unpack_command(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A packed file.")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The safetensors file, in an existing folder.")
    ],
    overwrite: OverwriteFile = False,
) -> None:
    """Convert a packed file to plain dense safetensors, bit for bit."""
    tensors = load(verified(source))
    prepare_file(out, ".safetensors")
    check_new(out, overwrite=overwrite, source=source)
    save_checkpoint(tensors, out)
    show(f"{out}: {out.stat().st_size:,} bytes, {len(tensors)} tensors")


def inspect_command(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="A checkpoint, packed or not, or a run folder.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON instead of the table.")
    ] = False,
) -> None:
    """List the tensors of a file: shapes, sparsity, patterns, storage forms and bytes."""
    report = describe(model_file(source))
    if as_json:
        show_json(report.to_dict())
    else:
        show(file_table(report))


def file_table(report: FileReport) -> Table:
    """Return a table of the tensors of a file and their totals."""
    kind = "packed" if report.packed else "plain"
    title = f"{kind}: {report.file_bytes:,} bytes, {report.ratio:.4f} of {report.dense_bytes:,}"
    entries = sum(row.entries for row in report.tensors)
    sparsity = 1 - sum(row.nonzeros for row in report.tensors) / max(entries, 1)
    table = Table(title=title, show_footer=True, box=SIMPLE)
    table.add_column("tensor", "all", overflow="fold")
    table.add_column("type")
    table.add_column("shape")
    table.add_column("sparsity", f"{sparsity:.2%}", justify="right")
    table.add_column("pattern")
    table.add_column("stored as", overflow="fold")
    table.add_column("bytes", f"{sum(r.stored_bytes for r in report.tensors):,}", justify="right")
    for row in report.tensors:
        table.add_row(
            row.name,
            row.dtype,
            "x".join(map(str, row.shape)),
            f"{row.sparsity:.2%}",
            row.pattern,
            row.form,
            f"{row.stored_bytes:,}",
        )
    return table
