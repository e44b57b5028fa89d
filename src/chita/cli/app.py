"""The command line of chita: all commands, logging and how errors are shown."""

from __future__ import annotations

import logging
import signal
import sys
from importlib import metadata
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape

from chita.cli.bench import bench_command
from chita.cli.data import get_command
from chita.cli.demo import demo_command
from chita.cli.export import export_command
from chita.cli.gradual import gradual_command
from chita.cli.pack import inspect_command, pack_command, unpack_command
from chita.cli.prune import prune_command
from chita.cli.recover import recover_command
from chita.cli.report import report_command
from chita.cli.sensitivity import sensitivity_command
from chita.cli.speed import speed_command
from chita.cli.train import train_command
from chita.errors import ChitaError
from chita.report.console import show

app = typer.Typer(
    help="Prune trained neural networks by combinatorial optimisation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Download data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")
data_app.command("get")(get_command)
app.command("train")(train_command)
app.command("demo")(demo_command)
app.command("bench")(bench_command)
app.command("export")(export_command)
app.command("gradual")(gradual_command)
app.command("prune")(prune_command)
app.command("recover")(recover_command)
app.command("sensitivity")(sensitivity_command)
app.command("pack")(pack_command)
app.command("unpack")(unpack_command)
app.command("inspect")(inspect_command)
app.command("speed")(speed_command)
app.command("report")(report_command)


def _print_version(requested: bool) -> None:
    if requested:
        show(f"chita {metadata.version('chita')}")
        raise typer.Exit


@app.callback()
def setup(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log each step.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Prune trained neural networks by combinatorial optimisation."""
    level = logging.INFO if verbose else logging.WARNING
    handler = RichHandler(console=Console(stderr=True), show_path=False)
    logging.basicConfig(level=level, format="%(message)s", handlers=[handler])


def main() -> None:
    """Run the command line; a ChitaError is shown as one line without a traceback."""
    try:
        app()
    except ChitaError as error:
        message = f"[bold red]error:[/] {escape(str(error))}"
        Console(stderr=True).print(message, soft_wrap=True, highlight=False)
        sys.exit(1)
    finally:  # another Ctrl-C during Python's cleanup ends the process without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
