"""What commands say on standard output: lines, tables, and JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def show(*parts: str | Table) -> None:
    """Lines as they are, however long and whatever brackets they hold, and tables."""
    console = Console()
    for part in parts:
        if isinstance(part, str):
            console.print(part, soft_wrap=True, markup=False, highlight=False)
        else:
            console.print(part)


def show_json(record: Mapping[str, Any]) -> None:
    """One line."""
    sys.stdout.write(json.dumps(record) + "\n")
