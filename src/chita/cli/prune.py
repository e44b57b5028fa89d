"""The command `chita prune`: run `chita.prune` on a network and its data."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from chita.cli.import_option import Imports
from chita.cli.launch import Output, open_with_data, resumable
from chita.cli.prune_options import read_options, with_prune_options
from chita.cli.set_option import Arguments, read_arguments
from chita.cli.shared_options import (
    AsJson,
    Context,
    DataName,
    Device,
    NetworkName,
    Overwrite,
    SequenceCount,
    TestName,
    TextFile,
    ValSplit,
    choose_data,
    out_folder,
    read_loss,
    text_size,
)
from chita.cli.threads import Threads
from chita.data import Batches
from chita.errors import ChitaError
from chita.files.run_folder import PAGE_FILE, RESULT_FILES, replacing, write_run
from chita.model.batch_norm import reestimate_batch_norm
from chita.model.forward import device_of
from chita.model.score import Metric
from chita.pruning.allocation import GLOBAL
from chita.pruning.config import PruneConfig, resolve_config
from chita.pruning.options.declaration import defaults_of
from chita.pruning.options.text import read_shares
from chita.pruning.prune import prune
from chita.pruning.result import PruneResult
from chita.pruning.resume import StageFile
from chita.report.console import show, show_json
from chita.report.page.render import write_page
from chita.report.progress import Tracked
from chita.report.tables import counts_table, layer_table, summary_table
from chita.zoo import Network, find_network
from chita.zoo.network_data import is_own
from chita.zoo.trained import Trained

logger = logging.getLogger(__name__)

SPARSITY = 0.9  # the default without a floor


@with_prune_options
def prune_command(
    network: NetworkName,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Trained weights; by default those that come with MODEL.")
    ] = None,
    data_name: DataName = None,
    text: TextFile = None,
    context: Context = None,
    sequences: SequenceCount = None,
    test_name: TestName = None,
    val_split: ValSplit = None,
    arguments: Arguments = None,
    reestimate_bn: Annotated[
        bool,
        typer.Option(
            "--reestimate-bn", help="Re-estimate the statistics of batch norm before pruning."
        ),
    ] = False,
    device: Device = None,
    threads: Threads = None,
    out: Annotated[Path | None, out_folder("Folder for the pruned model and the result.")] = None,
    overwrite: Overwrite = False,
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

    Without --sparsity, --max-loss-increase and --min-accuracy, the sparsity is 0.9. --loss also
    accepts a function, as MODULE:NAME or FILE.py:NAME.
    """
    built_with = read_arguments(arguments)
    known = find_network(network, built_with)
    if report and out is None:
        raise ChitaError("--report writes OUT/report.html and requires --out DIR")
    data_name = choose_data(data_name, text)
    loss_name, loss = read_loss(options["loss"])
    config = _read_config(known, layer, {**options, "loss": loss_name})  # before data are fetched
    if config.memory is not None:
        _log_plans()
    given = {
        "network": network,
        "set": built_with,
        "data": data_name,
        "context": context,
        "sequences": sequences,
        "test": test_name,
        "val_split": val_split,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "reestimate_bn": reestimate_bn,
        "import": imports,
        "layer": read_shares("--layer", layer or []),
    }
    names = (*RESULT_FILES, *([PAGE_FILE] if report else []), *known.writes)
    output = Output(out, names, [checkpoint, *known.reads], overwrite)
    with resumable(StageFile, output, resume=resume, device=device) as (ranks, place):
        trained = open_with_data(
            known,
            checkpoint,
            data_name,
            test_name=test_name,
            val_split=val_split,
            seed=config.seed,
            place=place,
            ranks=ranks,
            text=text_size(context, sequences),
        )
        if reestimate_bn:
            _reestimate(trained)
        test = _tracked(trained.test) if ranks.rank == 0 else None  # rank 0 reports
        if test is not None:
            logger.info("testing the dense network")
        metric = Metric(trained.model, test, loss or loss_name)
        dense = metric(trained.model)
        own_loss: dict[str, Any] = {} if loss is None else {"loss": loss}
        result = prune(
            trained.model, trained.calibration, config, checkpoints=out, resume=resume, **own_loss
        )
        if ranks.rank > 0:
            return
        given["data"] = trained.data_name
        given["loss"] = result.config.loss if loss is None else options["loss"]
        scores = {**dense.to_dict("dense_{}"), **metric(trained.model).to_dict()}
        record = {**result.to_dict(), **given, **scores}
        if out is not None:
            _write(out, known, result, given, record, page=report)
    show(layer_table(result), counts_table(result.counts), summary_table(record))
    if as_json:
        show_json(record)


def _tracked(test: Any) -> Any:
    """Return test data that show a bar if they are batches; other forms of data as they are."""
    return Tracked(test, "test") if isinstance(test, Batches) else test


def _log_plans() -> None:
    """Log where A, or the outputs of blocks, are stored."""
    for plan in ("chita.solver.matrix.plan", "chita.pruning.block_by_block.plan"):
        logging.getLogger(plan).setLevel(logging.INFO)


def _reestimate(trained: Trained) -> None:
    """Re-estimate batch norm on the training images, augmented as in training, or on own data."""
    if is_own(trained.data_name or ""):
        reestimate_batch_norm(trained.model, trained.calibration)
        return
    augmented = Batches(
        trained.splits.train,
        128,
        shuffle=True,
        augment=trained.network.augment,
        seed=trained.seed,
        device=device_of(trained.model),
    )
    reestimate_batch_norm(trained.model, Tracked(augmented, "batch norm"))


def _write(
    out: Path,
    network: Network,
    result: PruneResult,
    given: Mapping[str, Any],
    record: Mapping[str, Any],
    *,
    page: bool,
) -> None:
    """Write the model, its masks, the configuration and the result, and a page about them."""
    # The settings of this run, as `chita prune config.yaml` reads them.
    allocation = {"allocation": GLOBAL} if given["layer"] else {}
    config = {**given, **asdict(result.config), **allocation, "loss": given["loss"]}
    with replacing(out) as new:
        write_run(new, result.model, result.masks, config=config, record=record, save=network.save)
        if page:
            write_page(new, defaults=defaults_of(PruneConfig))


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
