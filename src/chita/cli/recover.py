"""The command `chita recover`: run `chita.recover` on a pruned network and its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch import Tensor

from chita.cli.launch import Output, launched, open_with_data
from chita.cli.recover_inputs import masks_of_zeros, open_teacher, with_values_of
from chita.cli.set_option import Arguments, read_arguments
from chita.cli.shared_options import (
    AsJson,
    Context,
    DataName,
    Device,
    LossName,
    Overwrite,
    SequenceCount,
    Source,
    SourceNetwork,
    TestName,
    TextFile,
    ValSplit,
    choose_data,
    out_folder,
    read_loss,
    text_size,
)
from chita.cli.threads import Threads
from chita.files.run_folder import (
    RESULT_FILES,
    config_beside,
    replacing,
    start_run,
    write_run,
)
from chita.model.named_losses import DISTILL, resolve_loss
from chita.model.score import Metric, Score
from chita.pruning.budget import WHAT, parse_budget
from chita.pruning.options.text import read_budget
from chita.pruning.recovery.recover import recover
from chita.pruning.recovery.result import RecoverResult
from chita.report.console import show, show_json
from chita.solver.ranks import Ranks
from chita.zoo import Network
from chita.zoo.find_trained import find_trained
from chita.zoo.trained import Trained


def recover_command(
    source: Source,
    network: SourceNetwork = None,
    arguments: Arguments = None,
    teacher: Annotated[
        Path | None,
        typer.Option(
            help="Weights of the dense network, a checkpoint or a run folder; by default those "
            "that the run in SOURCE started from, or those that come with the network."
        ),
    ] = None,
    data_name: DataName = None,
    text: TextFile = None,
    context: Context = None,
    sequences: SequenceCount = None,
    test_name: TestName = None,
    val_split: ValSplit = None,
    loss: LossName = None,
    budget: Annotated[str, typer.Option(help=f"How long to train: {WHAT}.")] = "balanced",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Random seed; by default that of the run in SOURCE, or 0."),
    ] = None,
    sync: Annotated[
        bool,
        typer.Option(
            "--sync",
            help="On several ranks, take the parameters, buffers and held-out samples of rank 0.",
        ),
    ] = False,
    device: Device = None,
    threads: Threads = None,
    out: Annotated[Path | None, out_folder("Folder for the trained model and the result.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train a pruned network to give the outputs of the dense one; pruned weights stay zero.

    Labels are used only to measure accuracies. Without --data and --text, the data are those of the
    run in SOURCE. --loss is distill (the default) or distill-mse. Another name, such as
    cross_entropy, or a function, as MODULE:NAME or FILE.py:NAME, is trained on with labels, instead
    of the dense network.
    """
    built_with = read_arguments(arguments)
    known, checkpoint = find_trained(source, network, built_with)
    run = {} if checkpoint is None else config_beside(checkpoint)
    loss_name, reference = read_loss(loss)
    loss_function = reference or resolve_loss(loss_name)
    config = with_values_of(
        run,
        {
            "network": known.name,
            "set": built_with,
            "source": source,
            "teacher": None if teacher is None else str(teacher),
            "data": choose_data(data_name, text),
            "test": test_name,
            "val_split": val_split,
            "seed": seed,
            "context": context,
            "sequences": sequences,
            "loss": loss or DISTILL,
            "budget": read_budget("--budget", budget),
            "sync": sync,
        },
    )
    parse_budget("--budget", config["budget"])  # a wrong value raises an error before any work
    names = (*RESULT_FILES, *known.writes)
    output = Output(out, names, [checkpoint, config["teacher"], *known.reads], overwrite)
    with launched(device) as (ranks, place), output.opened(ranks):
        masks = masks_of_zeros(known, checkpoint)
        dense = None
        if loss_function is None:
            dense = open_teacher(known, config["teacher"], place, own=checkpoint is not None)
        trained = _open(known, checkpoint, config, place, ranks)
        config["data"] = trained.data_name
        test = trained.test if ranks.rank == 0 else None
        metric = Metric(dense or trained.model, test, loss_function or config["loss"])
        scores = {"dense_{}": Score() if dense is None else metric(dense)}
        scores["{}_before"] = metric(trained.model)
        if out is not None and ranks.rank == 0:
            start_run(out)
        found = recover(
            trained.model,
            trained.calibration,
            masks=masks,
            teacher=dense,
            loss=loss_function or config["loss"],
            budget=config["budget"],
            seed=config["seed"],
            sync=sync,
        )
        if ranks.rank > 0:  # only rank 0 writes the results
            return
        scores["{}"] = metric(trained.model)
        record = _record(config, scores, masks, found)
        if out is not None:
            with replacing(out) as new:
                write_run(new, trained.model, masks, config=config, record=record, save=known.save)
    show(_summary(record))
    if as_json:
        show_json(record)


def _open(
    network: Network,
    checkpoint: Path | None,
    config: Mapping[str, Any],
    place: torch.device,
    ranks: Ranks,
) -> Trained:
    """Open the pruned network with its data."""
    return open_with_data(
        network,
        checkpoint,
        config["data"],
        test_name=config["test"],
        val_split=config["val_split"],
        seed=config["seed"],
        place=place,
        ranks=ranks,
        text=text_size(config["context"], config["sequences"]),
    )


def _record(
    config: Mapping[str, Any],
    scores: Mapping[str, Score],
    masks: Mapping[str, Tensor],
    found: RecoverResult,
) -> dict[str, Any]:
    """Return the options and results; `scores` has the form of the names for each score."""
    record = dict(config)
    for form, score in scores.items():
        record |= score.to_dict(form)
    return {
        **record,
        "weights": sum(mask.numel() for mask in masks.values()),
        "nonzeros": sum(int(mask.sum()) for mask in masks.values()),
        **{name: value for name, value in vars(found).items() if name != "model"},
    }


def _summary(record: Mapping[str, Any]) -> Table:
    """Return a table of the accuracies, the held-out losses and the effort."""
    title = f"{record['network']}, {1 - record['nonzeros'] / record['weights']:.2%} zeros"
    caption = None if record["kept"] else "The loss did not fall: the network is unchanged."
    table = Table("", title=title, caption=caption)
    for header in ("dense", "before", "after"):
        table.add_column(header, justify="right")
    table.add_row(*_score_row(record))
    losses = (record[name] for name in ("loss_before", "loss_after"))
    table.add_row("held-out loss", "", *(f"{loss:.4g}" for loss in losses), end_section=True)
    table.add_row("training steps", "", "", f"{record['steps']:,}")
    table.add_row("seconds", "", "", f"{record['seconds']:.1f}")
    return table


def _score_row(record: Mapping[str, Any]) -> list[str]:
    """Return the accuracies or else the losses on test data: dense, before and after."""
    for name, score, form in (
        ("test accuracy", "accuracy", "{:.2f} %"),
        ("test loss", "test_loss", "{:.4g}"),
    ):
        if record[score] is not None:
            values = (record[key] for key in (f"dense_{score}", f"{score}_before", score))
            return [name, *("-" if value is None else form.format(value) for value in values)]
    return ["test accuracy", *["no --test"] * 3]
