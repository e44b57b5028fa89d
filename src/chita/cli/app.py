"""The command line of chita: all commands, and train, data and demo themselves."""

from __future__ import annotations

import logging
import signal
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape

from chita import data, zoo
from chita.cli.bench import bench_command
from chita.cli.export import export_command
from chita.cli.gradual import gradual_command
from chita.cli.launch import pick_device
from chita.cli.pack import inspect_command, pack_command, unpack_command
from chita.cli.prune import prune_command
from chita.cli.report import report_command
from chita.cli.sensitivity import sensitivity_command
from chita.cli.speed import speed_command
from chita.cli.trained import Device, NetworkName, Seed, ValSplit, open_trained
from chita.data.sources import SOURCES
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.files.run_folder import prepare_file, prepare_folder
from chita.model.accuracy import accuracy
from chita.paper.demo import run_demo
from chita.report.console import say
from chita.report.progress import step_bar
from chita.zoo.training import train

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
app.command("prune")(prune_command)
app.command("sensitivity")(sensitivity_command)
app.command("pack")(pack_command)
app.command("unpack")(unpack_command)
app.command("inspect")(inspect_command)
app.command("speed")(speed_command)
app.command("report")(report_command)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"chita {metadata.version('chita')}")
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


@app.command("train")
def train_command(
    network: NetworkName,
    data_name: Annotated[str | None, typer.Option("--data", help="The network's by default.")] = (
        None
    ),
    val_split: ValSplit = None,
    epochs: Annotated[int | None, typer.Option(help="The recipe's by default.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="In a folder that is there; MODEL.safetensors by default.")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Train a network by its recipe: the embedded MLPNet is `chita train mlpnet --seed 0`."""
    known = zoo.get(network)
    recipe = known.recipe if epochs is None else replace(known.recipe, epochs=epochs)
    out = out or Path(f"{network}.safetensors")
    prepare_file(out, ".safetensors")
    opened = open_trained(
        known,
        None,
        data_name or known.data,
        val_split=val_split,
        seed=seed,
        place=pick_device(device),
        fresh=True,
    )
    with step_bar("training") as progress:
        train(opened.model, opened.splits.train, recipe, seed=seed, progress=progress)
    save_checkpoint(opened.model, out)
    score = accuracy(opened.model, opened.test)
    say(f"{network}: {score:.2f} % of the test set, written to {out}")


@data_app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SOURCES)}.")],
) -> None:
    """Find or download a data set, check it, and say where it is."""
    with step_bar(f"fetching {name}") as progress:
        where = data.get(name, progress=progress)
    data.load(name)  # files that were here before may be damaged
    say(f"{name} is in {where}")


@app.command("demo")
def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("runs/demo"),
) -> None:
    """Prune the embedded MLPNet by magnitude, CHITA and CHITA++, side by side."""
    prepare_folder(out)
    run_demo(out)


def main() -> None:
    """Run the command line; a user's error is one line, not a traceback."""
    try:
        app()
    except ChitaError as error:
        message = f"[bold red]error:[/] {escape(str(error))}"
        Console(stderr=True).print(message, soft_wrap=True, highlight=False)
        sys.exit(1)
    finally:  # one more Ctrl-C ends what Python still tidies up, without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
