"""The command `chita train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from chita import zoo
from chita.cli.launch import open_with_data, pick_device
from chita.cli.shared_options import Device, OverwriteFile, Seed, ValSplit
from chita.cli.threads import Threads
from chita.files.checkpoint import save_checkpoint
from chita.files.single_file import check_new, prepare_file
from chita.model.accuracy import accuracy
from chita.report.console import show
from chita.report.progress import step_bar
from chita.zoo.training import train


def train_command(
    network: Annotated[
        str, typer.Argument(metavar="MODEL", help=f"A network: {', '.join(zoo.NETWORKS)}.")
    ],
    data_name: Annotated[
        str | None, typer.Option("--data", help="Data set; by default that of the network.")
    ] = None,
    val_split: ValSplit = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs; by default that of the recipe.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File in an existing folder; default MODEL.safetensors.")
    ] = None,
    overwrite: OverwriteFile = False,
    seed: Seed = 0,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Train a network with its recipe; `chita train mlpnet --seed 0` gives the embedded MLPNet."""
    known = zoo.get(network)
    assert known.recipe is not None  # all networks of the zoo have one
    recipe = known.recipe if epochs is None else replace(known.recipe, epochs=epochs)
    out = out or Path(f"{network}.safetensors")
    prepare_file(out, ".safetensors")
    check_new(out, overwrite=overwrite)
    trained = open_with_data(
        known,
        None,
        data_name or known.data,
        val_split=val_split,
        seed=seed,
        place=pick_device(device),
        fresh=True,
    )
    with step_bar("training") as progress:
        train(trained.model, trained.splits.train, recipe, seed=seed, progress=progress)
    save_checkpoint(trained.model, out)
    score = accuracy(trained.model, trained.test)
    show(f"{network}: {score:.2f} % of the test set, written to {out}")
