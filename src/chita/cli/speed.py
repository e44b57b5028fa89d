"""The command `chita speed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from chita.cli.launch import pick_device
from chita.cli.shared_options import AsJson, Device, Source, SourceNetwork
from chita.deploy.fast.accelerate import choices_table
from chita.deploy.speed import comparison_table, measure_speed
from chita.errors import ChitaError
from chita.files.atomic import write_json
from chita.files.run_folder import prepare_file
from chita.report.console import show, show_json
from chita.zoo.trained import find_trained, open_trained, random_images

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def speed_command(
    source: Source,
    network: SourceNetwork = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Batch size (repeatable); default 1, 32, 256.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help=f"One of {', '.join(DTYPES)}; 2:4 needs half precision.")
    ] = "float32",
    device: Device = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the results, which must end in .json, in an existing folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time a pruned network against dense on every path of this machine, and advise one."""
    if dtype not in DTYPES:
        raise ChitaError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if out is not None:
        prepare_file(out, ".json")
    place = pick_device(device)
    known, checkpoint = find_trained(source, network)
    show(f"{known.name} from {checkpoint}")
    model = open_trained(known, checkpoint, with_data=False).model
    model = model.eval().to(place, DTYPES[dtype])
    show(f"{known.name} on {place}, threads: {torch.get_num_threads()}, {dtype}")
    found = []
    for size in batch or (1, 32, 256):
        images = random_images(known, size).to(place, DTYPES[dtype])
        found.append(measure_speed(model, images, size))
        show(choices_table(found[-1].layers), comparison_table(found[-1]))
    show(*(comparison.advice for comparison in found))
    record = {
        "network": known.name,
        "source": source,
        "device": str(place),
        "threads": torch.get_num_threads(),
        "dtype": dtype,
        "batches": [comparison.to_dict() for comparison in found],
    }
    if out is not None:
        write_json(out, record)
    if as_json:
        show_json(record)
