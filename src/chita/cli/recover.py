"""The command `chita recover`: run `chita.recover` on a pruned network of the zoo and its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch import Tensor, nn

from chita.cli.launch import launched, open_with_data
from chita.cli.shared_options import AsJson, DataName, Device, Source, SourceNetwork, ValSplit
from chita.errors import ChitaError
from chita.files.run_folder import config_beside, prepare_folder, write_run
from chita.model.accuracy import accuracy
from chita.model.weights import Weights
from chita.pruning.budget import WHAT, parse_budget
from chita.pruning.option_text import read_budget
from chita.pruning.recovery.recover import recover
from chita.report.console import show, show_json
from chita.zoo import Network
from chita.zoo.trained import find_trained, open_trained


def recover_command(
    source: Source,
    network: SourceNetwork = None,
    teacher: Annotated[
        Path | None,
        typer.Option(
            help="Weights of the dense network, a checkpoint or a run folder; by default those "
            "that the run in SOURCE started from, or those that ship with chita."
        ),
    ] = None,
    data_name: DataName = None,
    val_split: ValSplit = None,
    budget: Annotated[str, typer.Option(help=f"How long to train: {WHAT}.")] = "balanced",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Random seed; by default that of the run in SOURCE, or 0."),
    ] = None,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the trained model and the result.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a pruned network to give the outputs of the dense one; pruned weights stay zero.

    Labels are used only to measure accuracies. Without --data, the images are those of the run in
    SOURCE.
    """
    known, checkpoint = find_trained(source, network)
    run = config_beside(checkpoint)
    config = {
        "network": known.name,
        "source": source,
        "checkpoint": run.get("checkpoint") if teacher is None else str(teacher),
        **_choose_data(data_name, val_split, seed, run),
        "budget": read_budget("--budget", budget),
    }
    parse_budget("--budget", config["budget"])  # a wrong value raises an error before any work
    with launched(device) as (ranks, place):
        if ranks.rank == 0 and out is not None:
            _prepare(out, checkpoint)
        masks = _masks_of_zeros(known, checkpoint)
        dense = _open_teacher(known, config["checkpoint"], place)
        trained = open_with_data(
            known,
            checkpoint,
            config["data"],
            val_split=config["val_split"],
            seed=config["seed"],
            place=place,
            ranks=ranks,
        )
        model, test = trained.model, trained.test
        before = [accuracy(each, test) for each in (dense, model)] if ranks.rank == 0 else []
        found = recover(
            model,
            trained.calibration,
            masks=masks,
            teacher=dense,
            budget=config["budget"],
            seed=config["seed"],
        )
        if ranks.rank > 0:  # only rank 0 writes the results
            return
        config["data"] = trained.data_name
        measured = {name: value for name, value in vars(found).items() if name != "model"}
        record = {
            **config,
            "dense_accuracy": before[0],
            "accuracy_before": before[1],
            "accuracy": accuracy(model, test),
            "weights": sum(mask.numel() for mask in masks.values()),
            "nonzeros": sum(int(mask.sum()) for mask in masks.values()),
            **measured,
        }
        if out is not None:
            write_run(out, model, masks, config=config, record=record)
    show(_summary(record))
    if as_json:
        show_json(record)


def _choose_data(
    data_name: str | None, val_split: float | None, seed: int | None, run: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the data, val_split and seed: those given, or by default those of the pruning run.

    The seed divides an image folder. Another seed than that of the run would put images that the
    network was pruned with into the test set.
    """
    if data_name is None:
        data_name = run.get("data")
        val_split = run.get("val_split") if val_split is None else val_split
    used = run.get("seed")
    seed = (used or 0) if seed is None else seed
    if val_split is not None and used not in (None, seed):
        raise ChitaError(
            f"--seed {seed} with --val-split {val_split} divides the images differently from the "
            f"run, whose seed is {used}: leave out --seed"
        )
    return {"data": data_name, "val_split": val_split, "seed": seed}


def _prepare(out: Path, checkpoint: Path) -> None:
    """Prepare the output folder, which must not be that of the pruned network."""
    if out.resolve() == checkpoint.resolve().parent:
        raise ChitaError(f"--out {out} would overwrite the pruned network: give another folder")
    prepare_folder(out)


def _masks_of_zeros(network: Network, checkpoint: Path) -> dict[str, Tensor]:
    """Return the mask of each parameter that has zeros."""
    weights = Weights(open_trained(network, checkpoint, with_data=False).model)
    kept = weights.split(weights.vector() != 0)
    masks = {name: mask for name, mask in kept.items() if not mask.all()}
    if not masks:
        raise ChitaError(
            f"{checkpoint} has no zero weights, so nothing was pruned: give the checkpoint or the "
            "run folder of a pruned network"
        )
    return masks


def _open_teacher(network: Network, teacher: str | None, place: torch.device) -> nn.Module:
    """Return the dense network."""
    if teacher is None and network.embedded is None:
        raise ChitaError(
            f"no trained {network.name} ships with chita: pass the weights before pruning as "
            "--teacher"
        )
    try:
        return open_trained(network, teacher, place=place, with_data=False).model
    except ChitaError as error:
        raise ChitaError(
            f"--teacher must be a checkpoint of {network.name}, got {teacher}: {error}"
        ) from error


def _summary(record: Mapping[str, Any]) -> Table:
    """Return a table of the accuracies, the held-out losses and the effort."""
    title = f"{record['network']}, {1 - record['nonzeros'] / record['weights']:.2%} zeros"
    caption = None if record["kept"] else "The loss did not fall: the network is unchanged."
    table = Table("", title=title, caption=caption)
    for header in ("dense", "before", "after"):
        table.add_column(header, justify="right")
    accuracies = (record[name] for name in ("dense_accuracy", "accuracy_before", "accuracy"))
    table.add_row("test accuracy", *(f"{accuracy:.2f} %" for accuracy in accuracies))
    losses = (record[name] for name in ("loss_before", "loss_after"))
    table.add_row("held-out loss", "", *(f"{loss:.4g}" for loss in losses), end_section=True)
    table.add_row("training steps", "", "", f"{record['steps']:,}")
    table.add_row("seconds", "", "", f"{record['seconds']:.1f}")
    return table
