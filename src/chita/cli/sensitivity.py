"""The command `chita sensitivity`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from chita import zoo
from chita.cli.launch import open_with_data, pick_device
from chita.cli.shared_options import (
    AsJson,
    DataName,
    Device,
    Exclude,
    Include,
    NetworkName,
    Seed,
    ValSplit,
)
from chita.errors import ChitaError
from chita.files.atomic import write_csv, write_json
from chita.files.run_folder import prepare_folder
from chita.pruning.sensitivity.advice import advise
from chita.pruning.sensitivity.measure import LADDER, sensitivity
from chita.pruning.sensitivity.show import draw_sensitivity, sensitivity_table
from chita.report.console import show, show_json
from chita.report.progress import step_bar

logger = logging.getLogger(__name__)


def sensitivity_command(
    network: NetworkName,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Trained weights; by default those that ship with chita.")
    ] = None,
    data_name: DataName = None,
    val_split: ValSplit = None,
    sparsity: Annotated[
        float, typer.Option(help=f"Sparsity that the advice is for, at most {LADDER[-1]}.")
    ] = 0.9,
    samples: Annotated[int, typer.Option(min=1, help="Number of calibration samples.")] = 1000,
    include: Include = None,
    exclude: Exclude = None,
    seed: Seed = 0,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for sensitivity.json, .csv and .png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the loss against the sparsity of each layer, and advise which layers to limit."""
    known = zoo.get(network)
    if not 0 < sparsity <= LADDER[-1]:  # checked before data are fetched
        raise ChitaError(f"sparsity must be above 0 and at most {LADDER[-1]}, got {sparsity}")
    if out is not None:
        prepare_folder(out)
    place = pick_device(device)
    trained = open_with_data(
        known, checkpoint, data_name, val_split=val_split, seed=seed, place=place
    )
    with step_bar("pruning layer by layer") as progress:
        result = sensitivity(
            trained.model,
            trained.calibration,
            samples=samples,
            include=include or known.prunable,
            exclude=exclude or None,
            seed=seed,
            progress=progress,
        )
    advice = advise(result, sparsity)
    record = {
        "network": network,
        "data": trained.data_name,
        "sparsity": sparsity,
        **result.to_dict(),
        "at_most": {limit.layer: limit.sparsity for limit in advice.limits},
        "advice": str(advice),
    }
    if out is not None:
        write_json(out / "sensitivity.json", record)
        write_csv(out / "sensitivity.csv", result.rows())
        title = f"{network}, {trained.data_name}"
        try:
            draw_sensitivity(out / "sensitivity.png", result, title=title)
        except ChitaError as error:  # a missing figure must not lose the results
            logger.warning("sensitivity.png is not drawn: %s", error)
    show(sensitivity_table(result), str(advice))
    if as_json:
        show_json(record)
