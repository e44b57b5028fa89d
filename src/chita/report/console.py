"""Output of commands on standard output: lines, tables and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def show(*parts: str | Table) -> None:
    """Print tables, and lines of text without wrapping or markup."""
    console = Console()
    for part in parts:
        if isinstance(part, str):
            console.print(part, soft_wrap=True, markup=False, highlight=False)
        else:
            console.print(part)


def show_json(record: Mapping[str, Any]) -> None:
    """Print a record as one line of JSON."""
    sys.stdout.write(json.dumps(record) + "\n")
