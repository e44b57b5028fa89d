"""The parts of a page: facts, sections, charts and tables, as plain dicts for its JSON.

A format defines how the page writes a number, as in our tables: "share" (0.95 is 95.00%), "percent"
(96.88 is 96.88 %), "count", "seconds" and "number" (four digits).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Part = dict[str, Any]

_DIGITS = {
    "sparsity": ".2%",
    "accuracy": ".2f",
    "dense_accuracy": ".2f",
    "paper": ".2f",
    "objective": ".4g",
    "ridge": ".2g",
}


def fact(label: str, value: str, note: str = "") -> Part:
    """Return a headline figure."""
    return {"label": label, "value": value, "note": note}


def section(
    title: str,
    text: str = "",
    *,
    charts: Sequence[Part] = (),
    tables: Sequence[Part] = (),
    masks: Sequence[Part] = (),
) -> Part:
    """Return a section: a heading with its text, charts and tables."""
    return {
        "title": title,
        "text": text,
        "charts": list(charts),
        "tables": list(tables),
        "masks": list(masks),
    }


def axis(
    label: str, form: str = "number", *, log: bool = False, names: Sequence[str] | None = None
) -> Part:
    """Return an axis; with `names`, its values are indices into that list."""
    return {"label": label, "form": form, "log": log, "names": names and list(names)}


def point(x: float, y: float, note: str = "", error: float | None = None) -> Part:
    """Return a point with a note and the standard error of y."""
    return {"x": x, "y": y, "note": note, "error": error}


def series(name: str, points: Sequence[Part], *, style: str = "line", colour: int = 0) -> Part:
    """Return a series of points.

    Args:
        name: the name in the legend.
        points: the points in the order of x.
        style: "line"; "bold" for our methods; "dots" without a line; "paper" for hollow dots.
        colour: an index into the page's palette, the same for one method in all charts.
    """
    return {"name": name, "points": list(points), "style": style, "colour": colour}


def lines(
    title: str,
    x: Part,
    y: Part,
    curves: Iterable[Part],
    *,
    levels: Mapping[str, float] | None = None,
) -> Part:
    """Return a chart of curves over x, with named horizontal levels."""
    return {
        "kind": "lines",
        "title": title,
        "x": x,
        "y": y,
        "series": [curve for curve in curves if curve["points"]],
        "levels": [{"name": name, "y": value} for name, value in (levels or {}).items()],
    }


def bar(name: str, values: Sequence[float], text: str) -> Part:
    """Return a bar of the values of its parts, with a note."""
    return {"name": name, "values": list(values), "text": text}


def bars(
    title: str, label: str, form: str, parts: Sequence[str], rows: Sequence[Part], full: float = 0
) -> Part:
    """Return a chart of bars with several parts; its axis ends at `full` or at the longest bar."""
    return {
        "kind": "bars",
        "title": title,
        "label": label,
        "form": form,
        "parts": list(parts),
        "rows": list(rows),
        "full": full,
    }


def table(title: str, rows: Sequence[Mapping[str, Any]], *, unfolded: bool = False) -> Part:
    """Return a table with all columns of the rows, in the order of their first appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[show(name, row.get(name)) for name in columns] for row in rows]
    return {"title": title, "columns": columns, "rows": cells, "unfolded": unfolded}


def show(name: str, value: Any) -> str:
    """Format a value as text according to the name of its column."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        digits = ".2f" if name.endswith("seconds") else _DIGITS.get(name, ".5g")
        return f"{value:{'.2f' if digits == '.2%' and value > 1 else digits}}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {show(str(key), item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        by = " x " if name == "shape" else "; " if any(map(_nested, value)) else ", "
        return by.join(show(name, item) for item in value)
    return str(value)


def number(row: Mapping[str, Any], name: str) -> float | None:
    """Return the finite number in a column of a row, or None."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)
