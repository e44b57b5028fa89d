"""The command line of chita: all commands, and how errors are shown."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from importlib import metadata
from typing import Annotated

import typer

from chita.cli.bench import bench_command
from chita.cli.data import get_command
from chita.cli.demo import demo_command
from chita.cli.export import export_command
from chita.cli.gradual import gradual_command
from chita.cli.init import init_command
from chita.cli.log_output import write_logs
from chita.cli.pack import inspect_command, pack_command, unpack_command
from chita.cli.perplexity import perplexity_command
from chita.cli.prune import prune_command
from chita.cli.recover import recover_command
from chita.cli.report import report_command
from chita.cli.sensitivity import sensitivity_command
from chita.cli.speed import speed_command
from chita.cli.threads import limit_threads
from chita.cli.train import train_command
from chita.cli.weights import get_weights_command
from chita.errors import ChitaError
from chita.report.console import show, show_error
from chita.solver.matrix.memory import describe_shortage

logger = logging.getLogger(__name__)

app = typer.Typer(
    help="Prune trained neural networks by combinatorial optimisation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Download data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")
data_app.command("get")(get_command)
weights_app = typer.Typer(help="Download trained weights.", no_args_is_help=True)
app.add_typer(weights_app, name="weights")
weights_app.command("get")(get_weights_command)
app.command("train")(train_command)
app.command("demo")(demo_command)
app.command("bench")(bench_command)
app.command("export")(export_command)
app.command("gradual")(gradual_command)
app.command("prune")(prune_command)
app.command("recover")(recover_command)
app.command("sensitivity")(sensitivity_command)
app.command("perplexity")(perplexity_command)
app.command("init")(init_command)
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
    write_logs(verbose=verbose)
    limit_threads()


def main() -> None:
    """Run the command line; errors that are not bugs in chita are shown without a traceback."""
    try:
        try:
            app()
        finally:  # a full disk is noticed here, rather than when Python ends
            sys.stdout.flush()
    except Exception as error:
        line = line_for_user(error)
        if line is None:
            raise
        logger.info("the command failed", exc_info=error)
        _discard_output()
        with contextlib.suppress(OSError):  # standard error may be on a full disk, too
            show_error(line)
        sys.exit(1)
    except KeyboardInterrupt:  # before typer handles it
        sys.exit(130)
    finally:  # another Ctrl-C during Python's cleanup ends the process without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def line_for_user(error: Exception) -> str | None:
    """Return the line that a user sees in place of a traceback; None for a bug in chita."""
    if isinstance(error, ChitaError):
        return str(error)
    if (shortage := describe_shortage(error)) is not None:
        return f"{shortage}; use a smaller network or fewer samples, or a machine with more memory"
    if isinstance(error, OSError):
        return str(error)
    return None


def _discard_output() -> None:
    """Drop what cannot be written, so that Python does not try to write it again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
