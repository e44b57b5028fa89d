"""The command `chita speed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from chita.cli.launch import open_source, pick_device
from chita.cli.set_option import Arguments
from chita.cli.shared_options import (
    AsJson,
    Device,
    ExampleData,
    OverwriteFile,
    Source,
    SourceNetwork,
)
from chita.cli.threads import Threads
from chita.deploy.fast.accelerate import choices_table
from chita.deploy.speed import comparison_table, measure_speed
from chita.errors import ChitaError
from chita.files.atomic import write_json
from chita.files.single_file import check_new, prepare_file
from chita.model.samples.batch import map_tensors
from chita.pruning.options.text import read_sparsity_text
from chita.pruning.random_mask import apply_random_mask
from chita.pruning.schedule import check_sparsity
from chita.report.console import show, show_json
from chita.report.progress import step_bar
from chita.zoo.example import example_inputs

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def speed_command(
    source: Source,
    network: SourceNetwork = None,
    arguments: Arguments = None,
    data_name: ExampleData = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="SPARSITY",
            help="Time untrained weights with a random mask instead, before any pruning: a share "
            "of zeros such as 0.9, or a pattern such as 2:4.",
        ),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Batch size (repeatable); default 1, 32, 256.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help=f"One of {', '.join(DTYPES)}; 2:4 needs half precision.")
    ] = "float32",
    device: Device = None,
    threads: Threads = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the results, which must end in .json, in an existing folder."),
    ] = None,
    overwrite: OverwriteFile = False,
    as_json: AsJson = False,
) -> None:
    """Time a pruned network and the dense one in every form and runtime, and advise one.

    With --at, it times the network as it would be after pruning.
    """
    if dtype not in DTYPES:
        raise ChitaError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    target = None if at is None else _read_target(at)
    if out is not None:
        prepare_file(out, ".json")
        check_new(out, overwrite=overwrite)
    place = pick_device(device)
    trained = open_source(source, network, arguments, data_name, fresh=target is not None)
    name = trained.network.name
    if target is not None:
        apply_random_mask(trained.model, target, include=trained.network.prunable)
        show(f"{name} with a random mask at {at}: the time, not the accuracy, of a pruned network")
    model = trained.model.eval().to(place, DTYPES[dtype])
    show(f"{name} on {place}, threads: {torch.get_num_threads()}, {dtype}")
    found = []
    for size in batch or (1, 32, 256):
        example = map_tensors(
            lambda tensor: _converted(tensor, place, DTYPES[dtype]), example_inputs(trained, size)
        )
        with step_bar(f"timing layers, batch {size}") as progress:
            found.append(measure_speed(model, example, size, progress))
        show(choices_table(found[-1].layers), comparison_table(found[-1]))
    show(*(comparison.advice for comparison in found))
    record = {
        "network": name,
        "source": source,
        "at": at,
        "device": str(place),
        "threads": torch.get_num_threads(),
        "dtype": dtype,
        "batches": [comparison.to_dict() for comparison in found],
    }
    if out is not None:
        write_json(out, record)
    if as_json:
        show_json(record)


def _read_target(at: str) -> float | str:
    """Return the share of zeros, or the pattern, of --at."""
    target = read_sparsity_text("--at", at)
    if not isinstance(target, str):
        check_sparsity("--at", target)
    return target


def _converted(tensor: Tensor, place: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a tensor on a device; integers, such as token ids, keep their type."""
    return tensor.to(place, dtype if tensor.is_floating_point() else tensor.dtype)
