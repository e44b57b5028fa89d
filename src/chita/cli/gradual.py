"""The command `chita gradual`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from chita.cli.launch import Output, open_with_data, resumable
from chita.cli.set_option import Arguments, read_arguments
from chita.cli.settings_file import FILE
from chita.cli.shared_options import (
    AsJson,
    DataName,
    Device,
    NetworkName,
    Overwrite,
    Seed,
    TestName,
    ValSplit,
    out_folder,
)
from chita.cli.threads import Threads
from chita.data import Splits
from chita.errors import ChitaError
from chita.files.atomic import write_csv
from chita.files.run_folder import HISTORY_FILES, RESULT_FILES, replacing, write_run
from chita.gradual.epoch_file import EpochFile
from chita.gradual.history import History, draw_history
from chita.gradual.recipe import GradualRecipe, read_recipe, shipped_recipe
from chita.gradual.registry import METHODS, get_method
from chita.gradual.trainer import train_sparse
from chita.model.accuracy import accuracy
from chita.model.weights import Weights
from chita.report.console import show, show_json
from chita.report.progress import step_bar
from chita.zoo import find_network
from chita.zoo.trained import Trained

logger = logging.getLogger(__name__)


def gradual_command(
    network: NetworkName,
    data_name: DataName = None,
    test_name: TestName = None,
    val_split: ValSplit = None,
    arguments: Arguments = None,
    sparsity: Annotated[float, typer.Option(help="Share of the weights to set to zero.")] = 0.9,
    method: Annotated[
        str,
        typer.Option(
            help=f"Pruning method, one of {', '.join(METHODS)}; or dense, with --sparsity 0."
        ),
    ] = "chita-bso",
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs; by default that of the recipe.")
    ] = None,
    recipe_file: Annotated[
        Path | None,
        typer.Option(
            "--recipe",
            metavar=FILE,
            help="YAML file of the recipe, or of a run with one; by default that of the network.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Trained weights to start from, and of the teacher of --distill; by default those "
            "that come with MODEL."
        ),
    ] = None,
    distill: Annotated[
        bool,
        typer.Option(
            "--distill",
            help="Train on the outputs of the trained network, without labels, as the recovery of "
            "chita prune does.",
        ),
    ] = False,
    out: Annotated[Path | None, out_folder("Folder for the model and its history.")] = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue after the last finished epoch in OUT.")
    ] = False,
    seed: Seed = 0,
    device: Device = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Prune a network while training it, in steps between epochs of SGD or by a rival method."""
    built_with = read_arguments(arguments)
    known = find_network(network, built_with)
    recipe = _choose_recipe(network, recipe_file, epochs=epochs, distill=distill)
    fresh = _needs_no_weights(method, checkpoint, recipe)
    recipe.schedule(sparsity)  # a wrong sparsity raises an error before data are fetched
    config = {
        "network": network,
        "set": built_with,
        "data": data_name,
        "test": test_name,
        "val_split": val_split,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "method": method,
        "sparsity": sparsity,
        "distill": recipe.distill,
        "seed": seed,
    }
    names = (*RESULT_FILES, *HISTORY_FILES)
    output = Output(out, names, [checkpoint, recipe_file, *known.reads], overwrite)
    with resumable(EpochFile, output, resume=resume, device=device) as (ranks, place):
        trained = open_with_data(
            known,
            checkpoint,
            data_name,
            test_name=test_name,
            val_split=val_split,
            seed=seed,
            place=place,
            ranks=ranks,
            fresh=fresh,
        )
        config["data"] = trained.data_name
        splits = trained.splits  # missing test data are an error, whose message names --test
        first = ranks.rank == 0  # the rank that measures and writes
        dense_accuracy = accuracy(trained.model, trained.test) if first and not fresh else None
        history = _train(
            trained, splits, recipe, config, out=out, resume=resume, show_progress=first
        )
        if not first:
            return
        record = _record(config, dense_accuracy, history)
        if out is not None:
            _write(out, trained, recipe, history, config=config, record=record)
    show(_summary(record))
    if as_json:
        show_json(record)


def _choose_recipe(
    network: str, file: Path | None, *, epochs: int | None, distill: bool
) -> GradualRecipe:
    """Return the recipe of the file, or that of the network, with the options of the command."""
    recipe = shipped_recipe(network) if file is None else read_recipe(file)
    recipe = recipe if epochs is None else replace(recipe, epochs=epochs)
    return replace(recipe, distill=recipe.distill or distill)


def _needs_no_weights(method: str, checkpoint: Path | None, recipe: GradualRecipe) -> bool:
    """Return whether the method trains from fresh, random weights, and without a teacher."""
    fresh = get_method(method).from_scratch and not recipe.distill
    if fresh and checkpoint is not None:
        raise ChitaError(
            f"{method} trains from fresh weights: leave out --checkpoint {checkpoint}, or give "
            "--distill to train on the outputs of that network"
        )
    return fresh


def _train(
    trained: Trained,
    splits: Splits,
    recipe: GradualRecipe,
    config: Mapping[str, Any],
    *,
    out: Path | None,
    resume: bool,
    show_progress: bool,
) -> History:
    with step_bar("training") as progress:
        return train_sparse(
            trained.model,
            splits,
            recipe,
            method=config["method"],
            sparsity=config["sparsity"],
            seed=config["seed"],
            device=trained.place,
            include=trained.network.prunable,
            out=out,
            resume=resume,
            progress=progress if show_progress else None,
        )


def _record(
    config: Mapping[str, Any], dense_accuracy: float | None, history: History
) -> dict[str, Any]:
    return {
        **config,
        "target_sparsity": config["sparsity"],
        "method_title": get_method(config["method"]).title,
        "dense_accuracy": dense_accuracy,
        **history.to_dict(),
    }


def _write(
    out: Path,
    trained: Trained,
    recipe: GradualRecipe,
    history: History,
    *,
    config: Mapping[str, Any],
    record: Mapping[str, Any],
) -> None:
    """Write the model, its masks, the configuration, the result and the history with a figure."""
    model, network = trained.model, trained.network
    weights = Weights(model, network.prunable)
    masks = weights.split(weights.vector() != 0)
    title = f"{network.name}, {config['method']}, {history.sparsity:.1%} sparse"
    with replacing(out) as new:
        write_run(new, model, masks, config={**config, "recipe": asdict(recipe)}, record=record)
        write_csv(new / "history.csv", history.table())
        try:
            draw_history(new / "history.png", history.rows, title=title)
        except ChitaError as error:  # a missing figure must not lose the training
            logger.warning("history.png is not drawn: %s", error)


def _summary(record: Mapping[str, Any]) -> str:
    before, from_scratch = record["dense_accuracy"], get_method(record["method"]).from_scratch
    start = "from fresh weights" if from_scratch else f"{before:.2f} % before"
    if record["distill"]:
        start += f", distilled from {before:.2f} %" if from_scratch else ", distilled"
    return (
        f"{record['network']} by {record['method']}: {record['accuracy']:.2f} % of the test set "
        f"({start}), {record['nonzeros']} of {record['weights']} weights left "
        f"({record['sparsity']:.2%} sparse), {record['seconds']:.0f} s"
    )
