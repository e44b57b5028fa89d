"""The command `chita sensitivity`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from chita.cli.launch import Output, open_with_data, pick_device
from chita.cli.set_option import Arguments, read_arguments
from chita.cli.shared_options import (
    AsJson,
    Context,
    DataName,
    Device,
    Exclude,
    Include,
    LossName,
    NetworkName,
    Overwrite,
    Seed,
    SequenceCount,
    TextFile,
    ValSplit,
    choose_data,
    out_folder,
    read_loss,
    text_size,
)
from chita.cli.threads import Threads
from chita.errors import ChitaError
from chita.files.atomic import write_csv, write_json
from chita.files.run_folder import replacing
from chita.pruning.sensitivity.advice import advise
from chita.pruning.sensitivity.measure import LADDER, sensitivity
from chita.pruning.sensitivity.result import SensitivityResult, sensitivity_table
from chita.pruning.sensitivity.show import draw_sensitivity
from chita.report.console import show, show_json
from chita.report.progress import step_bar
from chita.solver.ranks import ALONE
from chita.zoo import find_network

logger = logging.getLogger(__name__)

FILES = ("sensitivity.json", "sensitivity.csv", "sensitivity.png")


def sensitivity_command(
    network: NetworkName,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Trained weights; by default those that come with MODEL.")
    ] = None,
    data_name: DataName = None,
    text: TextFile = None,
    context: Context = None,
    sequences: SequenceCount = None,
    val_split: ValSplit = None,
    arguments: Arguments = None,
    loss: LossName = None,
    sparsity: Annotated[
        float, typer.Option(help=f"Sparsity that the advice is for, at most {LADDER[-1]}.")
    ] = 0.9,
    samples: Annotated[int, typer.Option(min=1, help="Number of calibration samples.")] = 1000,
    include: Include = None,
    exclude: Exclude = None,
    seed: Seed = 0,
    device: Device = None,
    threads: Threads = None,
    out: Annotated[Path | None, out_folder("Folder for sensitivity.json, .csv and .png.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Measure the loss against the sparsity of each layer, and advise which layers to limit."""
    built_with = read_arguments(arguments)
    known = find_network(network, built_with)
    data_name = choose_data(data_name, text)
    loss_name, loss_function = read_loss(loss)
    if not 0 < sparsity <= LADDER[-1]:  # checked before data are fetched
        raise ChitaError(f"sparsity must be above 0 and at most {LADDER[-1]}, got {sparsity}")
    with Output(out, FILES, [checkpoint, *known.reads], overwrite).opened(ALONE):
        place = pick_device(device)
        trained = open_with_data(
            known,
            checkpoint,
            data_name,
            val_split=val_split,
            seed=seed,
            place=place,
            text=text_size(context, sequences),
        )
        with step_bar("pruning layer by layer") as progress:
            result = sensitivity(
                trained.model,
                trained.calibration,
                loss=loss_function or loss_name,
                samples=samples,
                include=include or known.prunable,
                exclude=exclude or None,
                seed=seed,
                progress=progress,
            )
        advice = advise(result, sparsity)
        record = {
            "network": network,
            "set": built_with,
            "data": trained.data_name,
            "context": context,
            "sequences": sequences,
            "loss": loss,
            "sparsity": sparsity,
            **result.to_dict(),
            "at_most": {limit.layer: limit.sparsity for limit in advice.limits},
            "advice": str(advice),
        }
        if out is not None:
            _write(out, result, record)
    show(sensitivity_table(result), str(advice))
    if as_json:
        show_json(record)


def _write(out: Path, result: SensitivityResult, record: Mapping[str, Any]) -> None:
    """Write the curves as JSON, as a table and as a figure."""
    title = f"{record['network']}, {record['data']}"
    with replacing(out, FILES) as new:
        write_json(new / "sensitivity.json", record)
        write_csv(new / "sensitivity.csv", result.rows())
        try:
            draw_sensitivity(new / "sensitivity.png", result, title=title)
        except ChitaError as error:  # a missing figure must not lose the results
            logger.warning("sensitivity.png is not drawn: %s", error)
