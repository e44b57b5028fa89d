"""What was timed, as Rich tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from chita.deploy.fast.accelerate import DENSE, LayerChoice
from chita.deploy.speed import Comparison


def choices_table(rows: Sequence[LayerChoice]) -> Table:
    """What each layer became, and why."""
    table = Table("layer", "shape", title="layer by layer")
    table.add_column("sparsity", justify="right")
    table.add_column("form")
    table.add_column("why")
    for row in rows:
        shape = " x ".join(str(size) for size in row.shape)
        table.add_row(row.name or "-", shape, f"{row.sparsity:.2%}", row.chosen, row.reason)
    return table


def comparison_table(comparison: Comparison) -> Table:
    """All paths at one batch size: median, spread and gain over dense."""
    others = [f"{name} ({reason})" for name, reason in comparison.left_out.items()]
    caption = f"not timed: {', '.join(others)}" if others else None
    table = Table("path", title=f"batch {comparison.batch}", caption=caption)
    for header in ("ms", "IQR", "times as fast", "IQR", "difference"):
        table.add_column(header, justify="right")
    dense = comparison.timings[DENSE]
    for name, timing in comparison.timings.items():
        low, median, high = timing.gains(dense)
        table.add_row(
            name,
            f"{1e3 * timing.median:.4g}",
            f"{1e3 * timing.spread:.2g}",
            f"{median:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{comparison.differences[name]:.1e}",
        )
    return table
