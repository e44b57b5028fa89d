"""Line plots with error bars, the common form of the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chita.paper.write import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_panels(figure: Figure, panels: Mapping[str, Sequence[Row]], *, y: str) -> list[Axes]:
    """Draw a line for each method against the sparsity, with a panel for each title.

    Args:
        figure: an empty figure.
        panels: the rows of each panel, by title; sparsities and patterns become names on the axis.
        y: the column for the vertical axis.

    Returns:
        The axes of each panel.
    """
    names = list(dict.fromkeys(row["method"] for found in panels.values() for row in found))
    figure.set_size_inches(5.2 * max(len(panels), 1), 4.2)
    drawn = []
    for place, (title, found) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        named = [{**row, "sparsity": str(row["sparsity"])} for row in found]
        draw_lines(axes, named, line="method", x="sparsity", y=y, names=names)
        axes.set(title=title)
        drawn.append(axes)
    return drawn


def draw_lines(
    axes: Axes, rows: Sequence[Row], *, line: str, x: str, y: str, names: Sequence[str] = ()
) -> None:
    """Draw a line for each value of the column `line`, with coordinates from columns `x` and `y`.

    Args:
        axes: the axes to draw on; they are labelled with the names of the columns.
        rows: the rows in the order of x; a column `standard_error` is shown as error bars.
        line: the column that identifies the line.
        x: the column for the horizontal axis.
        y: the column for the vertical axis.
        names: the names of the lines in all panels, so that a line has the same colour in each
            panel; by default those in the rows.
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
    if rows:
        axes.legend(fontsize="small")
