"""How the comparison of gradual pruning is shown: in the form of the paper's tables 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chita.bench.gradual_paper import TABLES, Published
from chita.bench.write import Row, as_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPLANATION = """\
Every method trains for the same number of epochs: those marked * from fresh weights, as in their
papers, all others from the same dense network. The relative drop is (pruned - dense) / dense in
percent. In brackets the standard error, where there are several seeds. The last tables are the
paper's own, on other networks and other data; all but CHITA's figures in them come from the
literature, and methods there differ in their dense networks."""


def gradual_text(rows: Sequence[Row]) -> str:
    """Our table with a part for each sparsity, and the paper's two."""
    first = rows[0]
    heading = (
        f"## {first['network']}, {first['epochs']} epochs, {_seeds(rows)} "
        f"(dense: {first['dense']:.2f})"
    )
    parts = [EXPLANATION, heading]
    for target in dict.fromkeys(row["target"] for row in rows):
        parts.append(as_markdown([_measured(row) for row in rows if row["target"] == target]))
    for title, published in TABLES.items():
        parts += [f"## {title}", as_markdown([_stated(row) for row in published])]
    return "\n\n".join(parts)


def _seeds(rows: Sequence[Row]) -> str:
    least, most = min(row["seeds"] for row in rows), max(row["seeds"] for row in rows)
    if least == most:
        return "1 seed" if most == 1 else f"{most} seeds"
    return f"{least} to {most} seeds"


def _measured(row: Row) -> Row:
    error = row["standard_error"]
    return {
        "method": row["method"] + (" *" if row["from_scratch"] else ""),
        "sparsity (%)": f"{row['sparsity']:.2f}",
        "pruned accuracy": f"{row['accuracy']:.2f}" + ("" if error is None else f" ({error:.2f})"),
        "relative drop (%)": f"{row['relative_drop']:.2f}",
        "remaining parameters": f"{row['remaining']:,}",
    }


def _stated(row: Published) -> Row:
    return {
        "method": row.method,
        "sparsity (%)": f"{row.sparsity:.2f}",
        "pruned accuracy": f"{row.accuracy:.2f}",
        "relative drop (%)": f"{row.drop:.2f}",
        "remaining parameters": f"{row.remaining:.2f} M",
    }


def draw_gradual(figure: Figure, rows: Sequence[Row]) -> None:
    """A panel for each sparsity with a bar for each method, the best on top; CHITA's stands out."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    figure.set_size_inches(5.2 * len(targets), 4.2)
    for place, target in enumerate(targets, start=1):
        panel = sorted(
            (row for row in rows if row["target"] == target), key=lambda row: float(row["accuracy"])
        )
        axes = figure.add_subplot(1, len(targets), place)
        axes.barh(
            [row["method"] + (" *" if row["from_scratch"] else "") for row in panel],
            [row["accuracy"] for row in panel],
            xerr=[row["standard_error"] or 0.0 for row in panel],
            color=["C1" if row["method"] == "CHITA" else "C0" for row in panel],
        )
        # The lowest methods may have learned nothing: what differs among the others is to be seen.
        middle = panel[len(panel) // 2]["accuracy"]
        best, dense = panel[-1]["accuracy"], panel[-1]["dense"]
        axes.set_xlim(max(0.0, middle - 2 * (dense - middle) - 2), max(best, dense) + 0.5)
        axes.axvline(dense, color="k", linewidth=0.8, linestyle="--")
        axes.set(title=f"{target:.0%} sparse", xlabel="test accuracy (%), dashed: dense")
        axes.grid(axis="x", alpha=0.3)
