"""The command `chita speed`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from chita.device import pick_device
from chita.errors import ChitaError
from chita.fast.speed import measure_speed
from chita.files import write_whole
from chita.output import prepare_folder
from chita.report.speed import choices_table, comparison_table
from chita.source import open_source, random_images

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def speed_command(
    source: Annotated[str, typer.Argument(help="A checkpoint, the folder of a run or a network.")],
    network: Annotated[
        str | None, typer.Option(help="What the checkpoint is of, if no run says so.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Samples at a time (repeatable); 1, 32, 256.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help=f"One of {', '.join(DTYPES)}; 2:4 needs a half.")
    ] = "float32",
    device: Annotated[
        str | None, typer.Option(help="Such as cpu or cuda; a GPU if there is one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the figures, as JSON.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one line of JSON on standard output.")
    ] = False,
) -> None:
    """Time a pruned network against dense on every path of this machine, and say what to use."""
    if dtype not in DTYPES:
        raise ChitaError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if out is not None:
        prepare_folder(out.parent)
    place = pick_device(device)
    known, model = open_source(source, network)
    model = model.to(place, DTYPES[dtype])
    console = Console()
    machine = f"{place}, threads: {torch.get_num_threads()}, {dtype}"
    console.print(f"{known.name} on {machine}", highlight=False)
    found = []
    for size in batch or (1, 32, 256):
        images = random_images(known, size).to(place, DTYPES[dtype])
        found.append(measure_speed(model, images, size))
        console.print(choices_table(found[-1].layers))
        console.print(comparison_table(found[-1]))
    for comparison in found:
        console.print(comparison.advice, highlight=False, soft_wrap=True, markup=False)
    record = {
        "network": known.name,
        "source": source,
        "device": str(place),
        "threads": torch.get_num_threads(),
        "dtype": dtype,
        "batches": [comparison.to_dict() for comparison in found],
    }
    if out is not None:
        write_whole(out, f"{json.dumps(record, indent=2)}\n".encode())
    if as_json:
        sys.stdout.write(json.dumps(record) + "\n")
