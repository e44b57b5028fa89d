"""chita prune: a network of the zoo, its data, and `chita.prune` between them."""

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
from chita.cli.imports import Imports
from chita.cli.launch import resumable
from chita.cli.trained import (
    AsJson,
    DataName,
    Device,
    Exclude,
    Include,
    NetworkName,
    Seed,
    Trained,
    ValSplit,
    open_trained,
    parse_allocation,
    parse_shares,
)
from chita.data import Batches
from chita.errors import ChitaError
from chita.files.run_folder import write_run
from chita.methods import BUILT_IN
from chita.model.accuracy import accuracy
from chita.model.batch_norm import reestimate_batch_norm
from chita.model.modes import device_of
from chita.pruning.allocation import RULES
from chita.pruning.auto.metrics import METRICS
from chita.pruning.config import BATCH, TRIED_METRICS, PruneConfig, Ridge
from chita.pruning.floor import Floor, sparsity_to_reach
from chita.pruning.prune import prune
from chita.pruning.result import PruneResult
from chita.pruning.resume import StageFile
from chita.pruning.schedule import MESHES
from chita.report.console import say, say_json
from chita.report.page.render import write_page
from chita.report.tables import counts_table, layer_table, summary_table
from chita.solver.constraints.pattern import read_sparsity

SPARSITY = 0.9  # unless one is given


def prune_command(
    network: NetworkName,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Trained weights; those that ship with chita by default.")
    ] = None,
    data_name: DataName = None,
    val_split: ValSplit = None,
    sparsity: Annotated[
        str | None,
        typer.Option(
            help="Share of the weights to set to zero (0.9), or N:M such as 2:4; with "
            "--max-loss-increase or --min-accuracy the most to try."
        ),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(help="Tiles of outputs x inputs to keep or drop, such as 4x1.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail where the pattern does not divide a weight.")
    ] = False,
    loss: Annotated[
        str | None, typer.Option(help="distill: keep to the dense outputs; labels are not used.")
    ] = None,
    method: Annotated[
        str, typer.Option(help=f"One of {', '.join(BUILT_IN)}, or one from --import.")
    ] = "auto",
    solver: Annotated[str | None, typer.Option(help="Inside chita++: bso (default) or cd.")] = None,
    stages: Annotated[
        int | None, typer.Option(help="Stages: 60 for auto and chita++, else 1, by default.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(MESHES)}; auto adapts its stages by default, others take "
            "polynomial."
        ),
    ] = None,
    start: Annotated[float, typer.Option(help="Sparsity of the first stage.")] = 0.2,
    hold: Annotated[float, typer.Option(help="Share of the stages that stay at the end.")] = 0.0,
    samples: Annotated[
        int | None, typer.Option(help="n, the rows of A; at most 1000 by default.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help=f"m, the samples averaged into a row; {BATCH} by default, for auto fewer where "
            "the data are few."
        ),
    ] = None,
    ridge: Annotated[str, typer.Option(help="lambda, or auto.")] = "auto",
    first_order: Annotated[
        bool | None,
        typer.Option(help="Use the first-order term; auto decides itself, others use it."),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="IHT updates a stage (cbs: rounds of swaps).")
    ] = None,
    continuation: Annotated[
        int, typer.Option(help="Shrinking supports on the way to the first one of a stage.")
    ] = 0,
    block_size: Annotated[int | None, typer.Option(help="Solve in blocks of this size.")] = None,
    block_sweeps: Annotated[
        int, typer.Option(help="Rounds in which blocks take turns; 0 solves them apart.")
    ] = 0,
    metric: Annotated[
        str | None,
        typer.Option(
            help=f"What makes a weight large: {', '.join(METRICS)}; or auto, the best of "
            f"{', '.join(TRIED_METRICS)}. For --method auto it is auto by default, else plain."
        ),
    ] = None,
    drop_dead: Annotated[
        bool | None,
        typer.Option(
            help="Remove first the weights that no sample depends on; auto and the CHITA methods "
            "do by default, the others do not."
        ),
    ] = None,
    max_loss_increase: Annotated[
        float | None,
        typer.Option(help="The sparsest network whose held-out loss rises by no more."),
    ] = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option(help="The sparsest network with this held-out accuracy, in percent."),
    ] = None,
    include: Include = None,
    exclude: Exclude = None,
    allocation: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(RULES)}: how layers share the zeros.")
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(help="GLOB=SPARSITY of some layers, in place of --allocation (repeatable)."),
    ] = None,
    at_least: Annotated[
        list[str] | None, typer.Option(help="GLOB=SPARSITY: no layer has less (repeatable).")
    ] = None,
    at_most: Annotated[
        list[str] | None, typer.Option(help="GLOB=SPARSITY: no layer has more (repeatable).")
    ] = None,
    reestimate_bn: Annotated[
        bool, typer.Option("--reestimate-bn", help="Re-estimate batch norm first.")
    ] = False,
    seed: Seed = 0,
    memory: Annotated[
        str | None, typer.Option(help="The most memory to take, such as 8GB; all by default.")
    ] = None,
    storage: Annotated[
        str, typer.Option(help="A is stored in float32, bfloat16 or float16.")
    ] = "float32",
    device: Device = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the model and the result.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after the last finished stage found in OUT.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="End with a page on the run, OUT/report.html.")
    ] = False,
    as_json: AsJson = False,
    imports: Imports = None,
) -> None:
    """Prune a trained network and say what is left of its accuracy."""
    known = zoo.get(network)
    if report and out is None:
        raise ChitaError("--report writes OUT/report.html: give --out DIR")
    floor = Floor(max_loss_increase, min_accuracy)
    share, pattern = read_sparsity(_pick_sparsity(sparsity, floor), pattern)
    config = PruneConfig(  # a wrong argument shows before data are fetched
        sparsity=share,
        loss=loss,
        method=method,
        solver=solver,
        samples=samples,
        batch=batch,
        ridge=_parse_ridge(ridge),
        first_order=first_order,
        stages=stages,
        schedule=schedule,
        start=start,
        hold=hold,
        iterations=iterations,
        continuation=continuation,
        block_size=block_size,
        block_sweeps=block_sweeps,
        metric=metric,
        drop_dead=drop_dead,
        max_loss_increase=max_loss_increase,
        min_accuracy=min_accuracy,
        pattern=pattern,
        strict=strict,
        include=include or known.prunable,
        exclude=exclude or None,
        allocation=parse_allocation(allocation, layer),
        at_least=parse_shares("--at-least", at_least),
        at_most=parse_shares("--at-most", at_most),
        seed=seed,
        memory=memory,
        storage=storage,
    )
    if memory is not None:  # who asks for a budget wants to know how it is kept
        logging.getLogger("chita.solver.matrix.plan").setLevel(logging.INFO)
    with resumable(StageFile, out, resume=resume, device=device) as (ranks, place):
        trained = open_trained(
            known,
            checkpoint,
            data_name,
            val_split=val_split,
            seed=seed,
            place=place,
            ranks=ranks,
        )
        if reestimate_bn:
            _reestimate(trained)
        dense_accuracy = accuracy(trained.model, trained.test) if ranks.rank == 0 else None
        result = prune(
            trained.model, trained.calibration, **asdict(config), checkpoints=out, resume=resume
        )
        if ranks.rank > 0:  # rank 0 speaks for all
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
    say(layer_table(result), counts_table(result.counts), summary_table(record))
    if as_json:
        say_json(record)


def _reestimate(trained: Trained) -> None:
    """Batch norm on the training images, augmented as they were in training."""
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
    """The model, its masks, the configuration, the result, and a page on them if asked for."""
    config = {**asdict(result.config), **given}
    write_run(out, result.model, result.masks, config=config, record=record)
    if page:
        write_page(out)


def _pick_sparsity(given: str | None, floor: Floor) -> float | str:
    """The sparsity asked for; without one the default, or where the search for a floor ends."""
    if given is None:
        return SPARSITY if floor == Floor() else sparsity_to_reach(None, floor)
    try:
        return given if ":" in given else float(given)
    except ValueError:
        raise ChitaError(
            f"sparsity must be a number in [0, 1), or N:M such as 2:4, got {given!r}"
        ) from None


def _parse_ridge(ridge: str) -> Ridge:
    try:
        return "auto" if ridge == "auto" else float(ridge)
    except ValueError:
        raise ChitaError(f"ridge must be 'auto' or a number, got {ridge!r}") from None
