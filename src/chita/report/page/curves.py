"""The charts that the pages of runs share: accuracy, and curves by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chita.report.page.folder import Record
from chita.report.page.parts import Part, axis, lines, number, point, section, series

Rows = Sequence[Mapping[str, Any]]


def accuracy_section(
    title: str,
    record: Record,
    ours: Sequence[Part],
    published: Mapping[str, Sequence[Part]],
    text: str = "",
) -> Part:
    """Return a section with this run and the paper's points for its network.

    Args:
        title: the title of the chart.
        record: the record of the run; its dense accuracy is a level.
        ours: the points of the run.
        published: the points of the paper's methods, by name; may be empty.
        text: the text of the section.
    """
    dense = number(record, "dense_accuracy")
    curves = [
        series(f"{method}, paper", points, style="paper", colour=colour)
        for colour, (method, points) in enumerate(published.items(), start=1)
    ]
    chart = lines(
        title,
        axis("sparsity", "share"),
        axis("test accuracy", "percent"),
        [*curves, series("this run", ours, style="dots")],
        levels=None if dense is None else {"dense, this run": dense},
    )
    if not published:
        text = "The paper states no figures for this network."
    return section("Accuracy", text, charts=[chart])


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
                point(row.get(what, place), value, note(row))
                for place, row in enumerate(rows, start=1)
                if (value := number(row, column)) is not None and not (y["log"] and value <= 0)
            ],
            colour=colour,
        )
        for colour, (column, name) in enumerate(columns.items())
    ]
    return lines(title, axis(what, "count"), y, curves)
