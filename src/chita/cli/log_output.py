"""Where the commands write log messages: standard error, with colours on a terminal.

A terminal shows a progress bar. In a log file, which would get empty lines from it, a long run
writes a line about its size and time, and then one a minute.
"""

from __future__ import annotations

import logging
import os

from rich.console import Console
from rich.logging import RichHandler

from chita.pruning import forecast
from chita.report.console import printable

LINE = "[%(asctime)s] %(levelname)-8s %(message)s"  # rich would divide it at 80 characters


class PrintableFormatter(logging.Formatter):
    """Formats messages without control characters: they may have names from files."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message."""
        return printable(super().format(record))


def write_logs(*, verbose: bool) -> None:
    """Write warnings to standard error, and with `verbose` a message for each step."""
    console = Console(stderr=True)
    handler: logging.Handler
    if console.is_terminal:
        handler = RichHandler(console=console, show_path=False)
        handler.setFormatter(PrintableFormatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(PrintableFormatter(LINE, "%X"))
        if os.environ.get("RANK", "0") == "0":  # of the ranks that torchrun started
            for logger in (forecast.logger, logging.getLogger("chita.cli.prune")):
                logger.setLevel(logging.INFO)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
