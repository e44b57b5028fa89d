"""Output of commands on standard output: lines, tables and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def printable(text: str) -> str:
    """Return text with control characters as escapes, apart from the ends of lines.

    The name of a tensor or file may contain any character, and a terminal executes some of them.
    """
    return "".join(
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text
    )


class PlainConsole(Console):
    """A console that shows text, also in tables, as it is: brackets are not markup."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text without markup and control characters."""
        return super().render_str(printable(text), **{**options, "markup": False})


def show(*parts: str | Table) -> None:
    """Print tables, and lines of text without wrapping."""
    console = PlainConsole()
    for part in parts:
        if isinstance(part, str):
            console.print(part, soft_wrap=True, highlight=False)
        else:
            console.print(part)


def show_error(text: str) -> None:
    """Print an error in one paragraph on standard error."""
    message = Text.assemble(("error:", "bold red"), " ", printable(text))
    Console(stderr=True).print(message, soft_wrap=True, highlight=False)


def show_json(record: Mapping[str, Any]) -> None:
    """Print a record as one line of JSON."""
    sys.stdout.write(json.dumps(record) + "\n")
