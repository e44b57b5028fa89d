"""Draw the rows of a benchmark: a chart for each panel of a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chita.errors import is_one_of
from chita.report import published as paper
from chita.report.page.benchmark_charts import View
from chita.report.page.parts import Part, axis, lines, number, point, series
from chita.report.page.text import format_value

Row = Mapping[str, Any]
OURS = ("CHITA", "auto")  # the prefixes of the names of our methods
NAME_COLUMNS = (
    "network",
    "method",
    "choice",
    "schedule",
    "run",
)  # need no label before their value
WHOLE = "whole"  # the curve of the rows without a block size


def view_charts(view: View, rows: Sequence[Row]) -> list[Part]:
    """Return a chart for each panel that has results of ours."""
    drawn = [row for row in rows if view.where(row)]
    kinds = dict.fromkeys(_kind(row, view.curve) for row in drawn)
    ours_first = sorted(kinds, key=lambda kind: not is_ours(kind))
    colours = {kind: place for place, kind in enumerate(ours_first)}
    charts = []
    for panel in dict.fromkeys(_kind(row, view.panel) for row in drawn):
        here = [row for row in drawn if _kind(row, view.panel) == panel]
        if any(number(row, y) is not None for row in here for y in view.y):
            charts.append(_chart(view, panel, here, colours))
    return charts


def _chart(view: View, panel: str, rows: Sequence[Row], colours: Mapping[str, int]) -> Part:
    names = [_name(view.x, value) for value in _places(view, rows)] if view.named else None
    return lines(
        f"{panel}: {view.title}" if panel else view.title,
        axis(_label(view.x), view.x_form, log=view.log_x, names=names),
        axis(_label(view.y[0]) if len(view.y) == 1 else "seconds", view.y_form, log=view.log_y),
        _curves(view, rows, colours),
        levels=_levels(rows[0]) if view.y == ("accuracy",) else None,
    )


def _levels(row: Row) -> dict[str, float]:
    """Return the accuracies of the dense networks: ours, and the paper's if it is compared."""
    levels = {}
    network = paper.paper_network(str(row.get("network")))
    if (dense := number(row, "dense")) is not None:
        levels["dense"] = dense
    if "paper" in row and network in paper.DENSE:
        levels["dense, paper"] = paper.DENSE[network]
    return levels


def _curves(view: View, rows: Sequence[Row], colours: Mapping[str, int]) -> list[Part]:
    """Return a curve for each kind of row and column of y, then the paper's dots."""
    places = _places(view, rows)
    curves, published = [], []
    for kind in dict.fromkeys(_kind(row, view.curve) for row in rows):
        here = [row for row in rows if _kind(row, view.curve) == kind]
        for offset, y in enumerate(view.y):
            name = (kind or WHOLE) if len(view.y) == 1 else f"{kind}, {y}"
            style = "bold" if is_ours(kind) else "line"
            colour = colours[kind] * len(view.y) + offset
            points = _points(view, here, y, places)
            style = style if view.joined else "dots"
            curves.append(series(name, points, style=style, colour=colour))
        if view.y == ("accuracy",):
            points = _points(view, here, "paper", places)
            published.append(series(f"{kind}, paper", points, style="paper", colour=colours[kind]))
    return curves + published


def _points(view: View, rows: Sequence[Row], y: str, places: Sequence[Any]) -> list[Part]:
    points = []
    for row in rows:
        x = places.index(row.get(view.x)) if view.named else number(row, view.x)
        value = number(row, y)
        if x is not None and value is not None and not (view.log_y and value <= 0):
            error = number(row, "standard_error") if y == view.y[0] else None
            points.append(point(x, value, error=error))
    return sorted(points, key=lambda item: item["x"])


def _places(view: View, rows: Sequence[Row]) -> list[Any]:
    """Return the values of x in order: numbers by size, names by first appearance."""
    values: list[Any] = []  # not a set: a damaged file may have lists here
    for row in rows:
        if row.get(view.x) not in values:
            values.append(row.get(view.x))
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


def _kind(row: Row, columns: Sequence[str]) -> str:
    """Return the name of a row's curve; a number is preceded by the name of its column."""
    words = []
    for column in columns:
        if row.get(column) is not None:
            name = _name(column, row[column])
            words.append(name if column in NAME_COLUMNS else f"{_label(column)} {name}")
    return ", ".join(words)


def _name(column: str, value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else format_value(column, value)


def _label(column: str) -> str:
    return {"accuracy": "test accuracy"}.get(column, column.replace("_", " "))


def with_title(row: Row) -> Row:
    """Return the row with the paper's name of its method."""
    method: Any = row.get("method")
    return {**row, "method": paper.NAMES[method]} if is_one_of(method, paper.NAMES) else row


def is_ours(method: Any) -> bool:
    """Return whether a name is that of one of our methods."""
    return str(method).startswith(OURS)
