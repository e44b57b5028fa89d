"""The layout of the gradual pruning benchmark, which follows the paper's tables 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chita.paper.write import Row, as_markdown
from chita.report.published import TABLES, Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPLANATION = """\
Every method trains for the same number of epochs. Methods marked * start from fresh weights, as in
their papers; all others start from the same trained network. The first row of each table is a dense
network trained from fresh weights with the same recipe and number of epochs: it is the reference
for the methods marked *. The relative drop is (pruned - dense) / dense in percent, where dense is
the trained network. The last tables are copied from the paper and use other networks and other
data. All figures in them except CHITA's come from the literature, and the methods start from
different dense networks."""
SEVERAL_SEEDS = """\
Accuracies are means over the seeds, with the standard error of the mean in brackets. Accuracies in
bold are at most two standard errors of the difference below the best method at that sparsity, which
means that they do not differ significantly from it. The order of the rows has no meaning. The error
bars in the figure extend two standard errors to each side."""


def gradual_text(rows: Sequence[Row]) -> str:
    """Return our table, with a part for each sparsity, and the two tables of the paper."""
    first = rows[0]
    heading = (
        f"## {first['network']}, {first['epochs']} epochs, {_seeds(rows)} "
        f"(dense: {first['dense']:.2f})"
    )
    several = [SEVERAL_SEEDS] if any(row["standard_error"] is not None for row in rows) else []
    parts = [EXPLANATION, *several, heading]
    parts += [as_markdown([_measured(row) for row in part]) for part in _parts(rows).values()]
    for title, published in TABLES.items():
        parts += [f"## {title}", as_markdown([_stated(row) for row in published])]
    return "\n\n".join(parts)


def _parts(rows: Sequence[Row]) -> dict[float, list[Row]]:
    """Return the rows of each sparsity, each time below those of the dense reference."""
    references = [row for row in rows if row["target"] == 0]
    targets = dict.fromkeys(row["target"] for row in rows if row["target"] != 0)
    return {
        target: [*references, *(row for row in rows if row["target"] == target)]
        for target in targets or {0.0: None}
    }


def _seeds(rows: Sequence[Row]) -> str:
    least, most = min(row["seeds"] for row in rows), max(row["seeds"] for row in rows)
    if least == most:
        return "1 seed" if most == 1 else f"{most} seeds"
    return f"{least} to {most} seeds"


def _measured(row: Row) -> Row:
    error = row["standard_error"]
    mean = f"**{row['accuracy']:.2f}**" if row["near_best"] else f"{row['accuracy']:.2f}"
    return {
        "method": _name(row),
        "sparsity (%)": f"{row['sparsity']:.2f}",
        "accuracy": mean + ("" if error is None else f" ({error:.2f})"),
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


def _name(row: Row) -> str:
    return str(row["method"]) + (" *" if row["from_scratch"] else "")


def draw_gradual(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw a panel for each sparsity with a bar for each row of its table, in the same order.

    Error bars are two standard errors long on each side. The dense reference is grey.
    """
    parts = _parts(rows)
    figure.set_size_inches(5.2 * len(parts), 4.2)
    for place, (target, part) in enumerate(parts.items(), start=1):
        axes = figure.add_subplot(1, len(parts), place)
        axes.barh(
            [_name(row) for row in part],
            [row["accuracy"] for row in part],
            xerr=[2 * (row["standard_error"] or 0.0) for row in part],
            color=[_colour(row) for row in part],
        )
        axes.invert_yaxis()  # put the first row at the top, as in the table
        axes.set_xlim(*_limits([row["accuracy"] for row in part], part[-1]["dense"]))
        axes.axvline(part[-1]["dense"], color="k", linewidth=0.8, linestyle="--")
        axes.set(title=f"{target:.0%} sparse", xlabel="test accuracy (%), dashed: dense, trained")
        axes.grid(axis="x", alpha=0.3)


def _colour(row: Row) -> str:
    if row["target"] == 0:
        return "0.6"
    return "C1" if row["method"] == "CHITA" else "C0"


def _limits(accuracies: Sequence[float], dense: float) -> tuple[float, float]:
    """Return the limits of the axis.

    A method with a very low accuracy may lie outside, so that differences between the others show.
    """
    ordered = sorted(accuracies)
    middle = ordered[len(ordered) // 2]
    return max(0.0, middle - 2 * (dense - middle) - 2), max(ordered[-1], dense) + 0.5
