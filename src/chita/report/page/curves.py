"""Charts of figures over the stages or epochs of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chita.report.page.parts import Part, axis, lines, number, point, series

Rows = Sequence[Mapping[str, Any]]


def place_of(row: Mapping[str, Any], what: str, place: int) -> float:
    """Return the number of a stage or epoch; its place among the rows if the row has none."""
    stated = number(row, what)
    return place if stated is None else stated


def by_number(
    title: str,
    y: Part,
    rows: Rows,
    columns: Mapping[str, str],
    *,
    what: str,
    note: Callable[[Mapping[str, Any]], str],
) -> Part:
    """Return a chart of some columns over the stages or epochs of a run.

    Args:
        title: the title of the chart.
        y: its axis; a logarithmic one omits values that are not positive.
        rows: a row for each stage or epoch.
        columns: the columns to draw, with the names of their curves.
        what: the column of stage or epoch numbers; without it, rows are counted from 1.
        note: returns the note of a point from its row.
    """
    curves = [
        series(
            name,
            [
                point(place_of(row, what, place), value, note(row))
                for place, row in enumerate(rows, start=1)
                if (value := number(row, column)) is not None and not (y["log"] and value <= 0)
            ],
            colour=colour,
        )
        for colour, (column, name) in enumerate(columns.items())
    ]
    return lines(title, axis(what, "count"), y, curves)
