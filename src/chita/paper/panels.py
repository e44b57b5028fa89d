"""The common form of the figures: lines with error bars, one for each of something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chita.paper.write import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_lines(
    axes: Axes, rows: Sequence[Row], *, line: str, x: str, y: str, names: Sequence[str] = ()
) -> None:
    """A line for each value of the column `line`, through the columns `x` and `y`.

    Args:
        axes: to draw on; labelled with the names of the columns.
        rows: in the order of x; their `standard_error`, where there is one, is shown.
        line: the column that tells the lines apart.
        x: the column along the horizontal axis.
        y: the column along the vertical axis.
        names: of the lines in all panels, where a line has one colour throughout; without them,
            those in the rows.
    """
    known = names or [row[line] for row in rows]
    for number, name in enumerate(dict.fromkeys(known)):
        of_line = [row for row in rows if row[line] == name]
        if not of_line:
            continue
        axes.errorbar(
            [row[x] for row in of_line],
            [row[y] for row in of_line],
            yerr=[row.get("standard_error") or 0.0 for row in of_line],
            marker="o",
            markersize=3,
            linewidth=1.2,
            capsize=2,
            color=f"C{number}",
            label=str(name),
        )
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
