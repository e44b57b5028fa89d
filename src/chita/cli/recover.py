"""The command `chita recover`: run `chita.recover` on a pruned network and its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch import Tensor, nn

from chita.cli.launch import Output, launched, open_with_data
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
    ValSplit,
    out_folder,
    read_loss,
)
from chita.cli.threads import Threads
from chita.data.text import SEQUENCES, TextSize
from chita.errors import ChitaError
from chita.files.run_folder import (
    RESULT_FILES,
    config_beside,
    replacing,
    start_run,
    write_run,
)
from chita.model.masks import masks_of
from chita.model.named_losses import DISTILL, resolve_loss
from chita.model.samples.fingerprint import fingerprint
from chita.model.score import Metric, Score
from chita.pruning.budget import WHAT, parse_budget
from chita.pruning.options.text import read_budget
from chita.pruning.recovery.recover import recover
from chita.report.console import show, show_json
from chita.zoo import Network
from chita.zoo.find_trained import find_trained
from chita.zoo.trained import open_trained


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

    Labels are used only to measure accuracies. Without --data, the data are those of the run in
    SOURCE. --loss is distill (the default) or distill-mse. Another name, such as cross_entropy, or
    a function, as MODULE:NAME or FILE.py:NAME, is trained on with labels, instead of the dense
    network.
    """
    built_with = read_arguments(arguments)
    known, checkpoint = find_trained(source, network, built_with)
    run = {} if checkpoint is None else config_beside(checkpoint)
    loss_name, reference = read_loss(loss)
    loss_function = reference or resolve_loss(loss_name)
    config = {
        "network": known.name,
        "set": built_with or run.get("set") or {},
        "source": source,
        "teacher": _choose_teacher(teacher, run),
        **_choose_data(data_name, test_name, val_split, seed, run),
        "context": run.get("context") if context is None else context,
        "sequences": run.get("sequences") if sequences is None else sequences,
        "loss": loss or DISTILL,
        "budget": read_budget("--budget", budget),
        "sync": sync,
    }
    parse_budget("--budget", config["budget"])  # a wrong value raises an error before any work
    names = (*RESULT_FILES, *known.writes)
    output = Output(out, names, [checkpoint, config["teacher"], *known.reads], overwrite)
    with launched(device) as (ranks, place), output.opened(ranks):
        masks = _masks_of_zeros(known, checkpoint)
        dense = None
        if loss_function is None:
            dense = _open_teacher(known, config["teacher"], place, own=checkpoint is not None)
        trained = open_with_data(
            known,
            checkpoint,
            config["data"],
            test_name=config["test"],
            val_split=config["val_split"],
            seed=config["seed"],
            place=place,
            ranks=ranks,
            text=TextSize(config["context"], config["sequences"] or SEQUENCES),
        )
        model = trained.model
        test = trained.test if ranks.rank == 0 else None
        metric = Metric(dense or model, test, loss_function or config["loss"])
        dense_score = Score() if dense is None else metric(dense)
        before = metric(model)
        if out is not None and ranks.rank == 0:
            start_run(out)
        found = recover(
            model,
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
        config["data"] = trained.data_name
        record = {
            **config,
            **dense_score.to_dict("dense_{}"),
            **before.to_dict("{}_before"),
            **metric(model).to_dict(),
            "weights": sum(mask.numel() for mask in masks.values()),
            "nonzeros": sum(int(mask.sum()) for mask in masks.values()),
            **{name: value for name, value in vars(found).items() if name != "model"},
        }
        if out is not None:
            with replacing(out) as new:
                write_run(new, model, masks, config=config, record=record, save=known.save)
    show(_summary(record))
    if as_json:
        show_json(record)


def _choose_teacher(teacher: Path | None, run: Mapping[str, Any]) -> str | None:
    """Return the dense weights: those given, or those of the run; None if it names no file."""
    if teacher is not None:
        return str(teacher)
    return run.get("checkpoint") or run.get("teacher")


def _choose_data(
    data_name: str | None,
    test_name: str | None,
    val_split: float | None,
    seed: int | None,
    run: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the data, test data, val_split and seed: those given, or those of the pruning run.

    The seed divides an image folder. Another seed than that of the run would put images that the
    network was pruned with into the test set.
    """
    if data_name is None:
        data_name = run.get("data")
        test_name = run.get("test") if test_name is None else test_name
        val_split = run.get("val_split") if val_split is None else val_split
    used = run.get("seed")
    seed = (used or 0) if seed is None else seed
    if val_split is not None and used not in (None, seed):
        raise ChitaError(
            f"--seed {seed} with --val-split {val_split} divides the images differently from the "
            f"run, whose seed is {used}: leave out --seed"
        )
    return {"data": data_name, "test": test_name, "val_split": val_split, "seed": seed}


def _masks_of_zeros(network: Network, checkpoint: Path | None) -> dict[str, Tensor]:
    """Return the mask of each parameter that has zeros."""
    masks = masks_of(open_trained(network, checkpoint, with_data=False).model)
    if not masks:
        raise ChitaError(
            f"{checkpoint or network.name} has no zero weights, so nothing was pruned: give the "
            "checkpoint or the run folder of a pruned network"
        )
    return masks


def _open_teacher(
    network: Network, teacher: str | None, place: torch.device, *, own: bool
) -> nn.Module:
    """Return the dense network.

    Args:
        network: the network.
        teacher: the checkpoint of its dense weights; None for those that come with the network.
        place: the device.
        own: whether the pruned weights are in a checkpoint of their own, and not those.
    """
    if teacher is None and network.embedded is None and not (own and network.build_trained):
        raise ChitaError(
            f"the dense weights of {network.name} are unknown: pass the weights before pruning as "
            "--teacher"
        )
    opened = open_trained(network, teacher, place=place, with_data=False)
    if teacher is None:
        if network.build_trained is not None and _values(opened.model) != _values(opened.build()):
            raise ChitaError(
                f"{network.name} builds other weights at each call, so those before pruning are "
                "unknown: pass them as --teacher"
            )
        return opened.model
    try:
        return opened.model
    except ChitaError as error:
        raise ChitaError(
            f"--teacher must be a checkpoint of {network.name}, got {teacher}: {error}"
        ) from error


def _values(model: nn.Module) -> str:
    return fingerprint(model.state_dict().items())


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
