"""The command line of chita: its commands, and prune, train, data and demo themselves."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.progress import track

import chita
from chita import data, zoo
from chita.allocation import RULES
from chita.batch_norm import reestimate_batch_norm
from chita.bench.command import bench_command
from chita.checkpoint import load_checkpoint, save_checkpoint
from chita.config import PruneConfig
from chita.data.sources import SOURCES
from chita.demo import run_demo
from chita.device import pick_device
from chita.errors import ChitaError
from chita.evaluate import accuracy
from chita.export_command import export_command
from chita.fast.command import speed_command
from chita.gradual.command import gradual_command
from chita.inputs import (
    IMAGE_FOLDER,
    load_data,
    parse_allocation,
    parse_shares,
    pick_data,
    shipped_checkpoint,
)
from chita.launch import first_rank_first, resumable
from chita.methods import METHODS
from chita.output import prepare_folder, write_run
from chita.packed.command import inspect_command, pack_command, unpack_command
from chita.page.command import report_command
from chita.page.render import write_page
from chita.pattern import read_sparsity
from chita.progress import step_bar
from chita.prune import prune
from chita.report.tables import counts_table, layer_table, summary_table
from chita.resume import StageFile
from chita.sensitivity.command import sensitivity_command
from chita.train import train

app = typer.Typer(
    help="Prune trained neural networks by combinatorial optimisation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="The data sets of the paper.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.command("bench")(bench_command)
app.command("export")(export_command)
app.command("gradual")(gradual_command)
app.command("sensitivity")(sensitivity_command)
app.command("pack")(pack_command)
app.command("unpack")(unpack_command)
app.command("inspect")(inspect_command)
app.command("speed")(speed_command)
app.command("report")(report_command)

NETWORKS = ", ".join(zoo.NETWORKS)
Device = Annotated[str | None, typer.Option(help="Such as cpu or cuda; a GPU if there is one.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")]
ValSplit = Annotated[
    float | None, typer.Option(help="Share of an image folder without train/ and val/ to test on.")
]


def _print_version(asked: bool) -> None:
    if asked:
        Console().print(f"chita {chita.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def setup(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Say it.")
    ] = False,
) -> None:
    """Prune trained neural networks by combinatorial optimisation."""
    level = logging.INFO if verbose else logging.WARNING
    handler = RichHandler(console=Console(stderr=True), show_path=False)
    logging.basicConfig(level=level, format="%(message)s", handlers=[handler])


@app.command("prune")
def prune_command(
    network: Annotated[str, typer.Argument(metavar="MODEL", help=f"A network: {NETWORKS}.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="Trained weights; those that ship with chita by default.")
    ] = None,
    data_name: Annotated[
        str | None,
        typer.Option("--data", help=f"One of {', '.join(data.NAMES)}, or {IMAGE_FOLDER}DIR."),
    ] = None,
    val_split: ValSplit = None,
    sparsity: Annotated[
        str, typer.Option(help="Share of the weights to set to zero, or N:M such as 2:4.")
    ] = "0.9",
    pattern: Annotated[
        str | None, typer.Option(help="Tiles of outputs x inputs to keep or drop, such as 4x1.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail where the pattern does not divide a weight.")
    ] = False,
    loss: Annotated[
        str | None, typer.Option(help="distill: keep to the dense outputs; labels are not used.")
    ] = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "chita++",
    solver: Annotated[str | None, typer.Option(help="Inside chita++: bso (default) or cd.")] = None,
    stages: Annotated[
        int | None, typer.Option(help="Stages: 60 for chita++, else 1, by default.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="exponential, linear, constant or polynomial (default).")
    ] = None,
    start: Annotated[float, typer.Option(help="Sparsity of the first stage.")] = 0.2,
    hold: Annotated[float, typer.Option(help="Share of the stages that stay at the end.")] = 0.0,
    samples: Annotated[
        int | None, typer.Option(help="n, the rows of A; at most 1000 by default.")
    ] = None,
    batch: Annotated[int, typer.Option(help="m, the samples averaged into a row.")] = 16,
    ridge: Annotated[str, typer.Option(help="lambda, or auto.")] = "auto",
    first_order: Annotated[bool, typer.Option(help="Use the first-order term.")] = True,
    iterations: Annotated[
        int | None, typer.Option(help="IHT updates a stage (cbs: rounds of swaps).")
    ] = None,
    continuation: Annotated[
        int, typer.Option(help="Shrinking supports on the way to the first one of a stage.")
    ] = 0,
    block_size: Annotated[int | None, typer.Option(help="Solve in blocks of this size.")] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Glob of parameter names to prune (repeatable).")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Glob of parameter names to leave (repeatable).")
    ] = None,
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
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one line of JSON on standard output.")
    ] = False,
) -> None:
    """Prune a trained network and say what is left of its accuracy."""
    known = zoo.get(network)
    share, pattern = read_sparsity(_parse_sparsity(sparsity), pattern)
    if report and out is None:
        raise ChitaError("--report writes OUT/report.html: give --out DIR")
    arguments: dict[str, Any] = {
        "sparsity": share,
        "pattern": pattern,
        "strict": strict,
        "loss": loss,
        "method": method,
        "solver": solver,
        "samples": samples,
        "batch": batch,
        "ridge": _parse_ridge(ridge),
        "first_order": first_order,
        "stages": stages,
        "schedule": schedule,
        "start": start,
        "hold": hold,
        "iterations": iterations,
        "continuation": continuation,
        "block_size": block_size,
        "include": include or known.prunable,
        "exclude": exclude or None,
        "allocation": parse_allocation(allocation, layer),
        "at_least": parse_shares("--at-least", at_least),
        "at_most": parse_shares("--at-most", at_most),
        "seed": seed,
        "memory": memory,
        "storage": storage,
    }
    PruneConfig(**arguments)  # a wrong argument shows before data are fetched
    if memory is not None:  # who asks for a budget wants to know how it is kept
        logging.getLogger("chita.storage.plan").setLevel(logging.INFO)
    with resumable(StageFile, out, resume=resume, device=device) as (ranks, place):
        data_name = pick_data(known, data_name, checkpoint)
        model = known.build().to(place)
        load_checkpoint(model, checkpoint or shipped_checkpoint(known))
        splits = first_rank_first(
            ranks, lambda: load_data(known, data_name, val_split=val_split, seed=seed)
        )
        if reestimate_bn:
            augmented = data.Batches(
                splits.train,
                128,
                shuffle=True,
                augment=known.recipe.augment,
                seed=seed,
                device=place,
            )
            reestimate_batch_norm(model, track(augmented, "batch norm", console=_stderr()))
        test = data.Batches(splits.test, known.batch_size, device=place)
        dense_accuracy = accuracy(model, test) if ranks.rank == 0 else None
        calibration = data.Batches(splits.train.shuffled(seed), known.batch_size, device=place)
        result = prune(model, calibration, **arguments, checkpoints=out, resume=resume)
        if ranks.rank > 0:  # rank 0 speaks for all
            return
        given = {
            "network": network,
            "data": data_name,
            "val_split": val_split,
            "checkpoint": None if checkpoint is None else str(checkpoint),
            "reestimate_bn": reestimate_bn,
        }
        record = {
            **given,
            "dense_accuracy": dense_accuracy,
            "accuracy": accuracy(model, test),
            **result.to_dict(),
        }
        if out is not None:
            config = {**asdict(result.config), **given}
            write_run(out, model, result.masks, config=config, record=record)
            if report:
                write_page(out)
    console = Console()
    console.print(layer_table(result))
    console.print(counts_table(result.counts))
    console.print(summary_table(record))
    if as_json:
        sys.stdout.write(json.dumps(record) + "\n")


@app.command("train")
def train_command(
    network: Annotated[str, typer.Argument(metavar="MODEL", help=f"A network: {NETWORKS}.")],
    data_name: Annotated[str | None, typer.Option("--data", help="The network's by default.")] = (
        None
    ),
    val_split: ValSplit = None,
    epochs: Annotated[int | None, typer.Option(help="The recipe's by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="MODEL.safetensors by default.")] = None,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Train a network by its recipe: the embedded MLPNet is `chita train mlpnet --seed 0`."""
    known = zoo.get(network)
    recipe = known.recipe if epochs is None else replace(known.recipe, epochs=epochs)
    out = out or Path(f"{network}.safetensors")
    if out.suffix != ".safetensors" or out.is_dir():
        raise ChitaError(f"out must be a file that ends in .safetensors, got {out}")
    prepare_folder(out.parent)
    place = pick_device(device)
    data_name = pick_data(known, data_name or known.data, None)
    splits = load_data(known, data_name, val_split=val_split, seed=seed)
    model = known.build().to(place)
    with step_bar("training") as progress:
        train(model, splits.train, recipe, seed=seed, progress=progress)
    save_checkpoint(model, out)
    score = accuracy(model, data.Batches(splits.test, known.batch_size, device=place))
    Console().print(
        f"{network}: {score:.2f} % of the test set, written to {out}", soft_wrap=True, markup=False
    )


@data_app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SOURCES)}.")],
) -> None:
    """Find or download a data set, check it, and say where it is."""
    with step_bar(f"fetching {name}") as progress:
        where = data.get(name, progress=progress)
    data.load(name)  # files that were here before may be damaged
    Console().print(f"{name} is in {where}", soft_wrap=True, markup=False)


@app.command("demo")
def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("runs/demo"),
) -> None:
    """Prune the embedded MLPNet by magnitude, CHITA and CHITA++, side by side."""
    prepare_folder(out)
    run_demo(out, Console())


def _parse_ridge(ridge: str) -> float | str:
    try:
        return ridge if ridge == "auto" else float(ridge)
    except ValueError:
        raise ChitaError(f"ridge must be 'auto' or a number, got {ridge!r}") from None


def _parse_sparsity(sparsity: str) -> float | str:
    try:
        return sparsity if ":" in sparsity else float(sparsity)
    except ValueError:
        raise ChitaError(
            f"sparsity must be a number in [0, 1), or N:M such as 2:4, got {sparsity!r}"
        ) from None


def _stderr() -> Console:
    return Console(stderr=True)


def main() -> None:
    """Run the command line; a user's error is one line, not a traceback."""
    try:
        app()
    except ChitaError as error:
        message = f"[bold red]error:[/] {escape(str(error))}"
        _stderr().print(message, soft_wrap=True, highlight=False)
        sys.exit(1)
