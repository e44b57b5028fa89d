"""Results as Rich tables."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table

from chita.result import PruneResult


def layer_table(result: PruneResult) -> Table:
    """How much of each layer is left, and of all of them."""
    title = f"{result.config.method}: {result.sparsity:.2%} of {result.weights:,} weights are zero"
    table = Table(title=title, show_footer=True)
    table.add_column("weight", "all")
    table.add_column("shape")
    table.add_column("weights", f"{result.weights:,}", justify="right")
    table.add_column("kept", f"{result.nonzeros:,}", justify="right")
    table.add_column("sparsity", f"{result.sparsity:.2%}", justify="right")
    for row in result.layers:
        shape = " x ".join(str(size) for size in row.shape)
        table.add_row(
            row.name, shape, f"{row.weights:,}", f"{row.nonzeros:,}", f"{row.sparsity:.2%}"
        )
    return table


def as_text(renderable: RenderableType, width: int = 100) -> str:
    """A table as plain text."""
    console = Console(file=StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()
