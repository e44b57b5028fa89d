"""The command `chita prune`: run `chita.prune` on a network of the zoo and its data."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from chita import zoo
from chita.cli.import_option import Imports
from chita.cli.launch import open_with_data, resumable
from chita.cli.prune_options import read_options, with_prune_options
from chita.cli.shared_options import (
    AsJson,
    DataName,
    Device,
    NetworkName,
    ValSplit,
)
from chita.data import Batches
from chita.errors import ChitaError
from chita.files.run_folder import write_run
from chita.model.accuracy import accuracy
from chita.model.batch_norm import reestimate_batch_norm
from chita.model.forward import device_of
from chita.pruning.allocation import GLOBAL
from chita.pruning.config import PruneConfig, resolve_config
from chita.pruning.option_text import read_shares
from chita.pruning.prune import prune
from chita.pruning.result import PruneResult
from chita.pruning.resume import StageFile
from chita.report.console import show, show_json
from chita.report.page.render import write_page
from chita.report.tables import counts_table, layer_table, summary_table
from chita.zoo import Network
from chita.zoo.trained import Trained

SPARSITY = 0.9  # the default without a floor


@with_prune_options
def prune_command(
    network: NetworkName,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Trained weights; by default those that ship with chita.")
    ] = None,
    data_name: DataName = None,
    val_split: ValSplit = None,
    reestimate_bn: Annotated[
        bool,
        typer.Option(
            "--reestimate-bn", help="Re-estimate the statistics of batch norm before pruning."
        ),
    ] = False,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pruned model and the result.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue after the last finished stage in OUT.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Write a page about the run, OUT/report.html.")
    ] = False,
    as_json: AsJson = False,
    imports: Imports = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            help="Sparsity of single layers, by glob pattern, instead of --allocation. Repeatable.",
            metavar="GLOB=SPARSITY",
            rich_help_panel="Layers",
        ),
    ] = None,
    **options: Any,
) -> None:
    """Prune a trained network and report the accuracy that it keeps.

    Without --sparsity, --max-loss-increase and --min-accuracy, the sparsity is 0.9.
    """
    known = zoo.get(network)
    if report and out is None:
        raise ChitaError("--report writes OUT/report.html and requires --out DIR")
    config = _read_config(known, layer, options)  # before data are fetched
    if config.memory is not None:
        # With a budget, the log shows where A is stored.
        logging.getLogger("chita.solver.matrix.plan").setLevel(logging.INFO)
    with resumable(StageFile, out, resume=resume, device=device) as (ranks, place):
        trained = open_with_data(
            known,
            checkpoint,
            data_name,
            val_split=val_split,
            seed=config.seed,
            place=place,
            ranks=ranks,
        )
        if reestimate_bn:
            _reestimate(trained)
        dense_accuracy = accuracy(trained.model, trained.test) if ranks.rank == 0 else None
        result = prune(trained.model, trained.calibration, config, checkpoints=out, resume=resume)
        if ranks.rank > 0:  # rank 0 reports
            return
        given = {
            "network": network,
            "data": trained.data_name,
            "val_split": val_split,
            "checkpoint": None if checkpoint is None else str(checkpoint),
            "reestimate_bn": reestimate_bn,
        }
        record = {
            **given,
            "dense_accuracy": dense_accuracy,
            "accuracy": accuracy(trained.model, trained.test),
            **result.to_dict(),
        }
        if out is not None:
            _write(out, result, given, record, page=report)
    show(layer_table(result), counts_table(result.counts), summary_table(record))
    if as_json:
        show_json(record)


def _reestimate(trained: Trained) -> None:
    """Re-estimate batch norm on the training images, augmented as in training."""
    augmented = Batches(
        trained.splits.train,
        128,
        shuffle=True,
        augment=trained.network.recipe.augment,
        seed=trained.seed,
        device=device_of(trained.model),
    )
    bar = track(augmented, "batch norm", console=Console(stderr=True))
    reestimate_batch_norm(trained.model, bar)


def _write(
    out: Path,
    result: PruneResult,
    given: Mapping[str, Any],
    record: Mapping[str, Any],
    *,
    page: bool,
) -> None:
    """Write the model, its masks, the configuration and the result, and a page about them."""
    config = {**asdict(result.config), **given}
    write_run(out, result.model, result.masks, config=config, record=record)
    if page:
        write_page(out)


def _read_config(
    network: Network, layers: list[str] | None, options: Mapping[str, Any]
) -> PruneConfig:
    """Return the configuration of the command line, with the defaults of the command."""
    given = read_options(options)
    given["include"] = given["include"] or network.prunable
    if layers:
        if given["allocation"] != GLOBAL:
            raise ChitaError(f"give --allocation {given['allocation']} or --layer, not both")
        given["allocation"] = read_shares("--layer", layers)
    if all(given[name] is None for name in ("sparsity", "max_loss_increase", "min_accuracy")):
        given["sparsity"] = SPARSITY
    return resolve_config(None, given)
