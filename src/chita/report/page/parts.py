"""The parts of a page: facts, charts, tables, sections and folds, as plain dicts for its JSON.

A format defines how the page writes a number: "share" (0.95 is 95.00 %), "percent" (96.88 is
96.88 %), "count", "seconds" and "number" (four digits).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chita.errors import is_finite, is_number
from chita.report.page.text import format_duration, format_value

Part = dict[str, Any]


def fact(label: str, value: str, note: str = "") -> Part:
    """Return a headline figure."""
    return {"label": label, "value": value, "note": note}


def section(title: str, text: str = "", *, charts: Sequence[Part] = ()) -> Part:
    """Return a section that is always visible: a heading with its text and charts."""
    return {"title": title, "text": text, "charts": list(charts)}


def fold(
    title: str,
    text: str = "",
    *,
    charts: Sequence[Part] = (),
    tables: Sequence[Part] = (),
    masks: Sequence[Part] = (),
) -> Part:
    """Return a part that readers open: its text, charts, tables and pictures of masks."""
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
    text: str = "",
) -> Part:
    """Return a chart of curves over x, with named horizontal levels."""
    return {
        "kind": "lines",
        "title": title,
        "text": text,
        "x": x,
        "y": y,
        "series": [curve for curve in curves if curve["points"]],
        "levels": [{"name": name, "y": value} for name, value in (levels or {}).items()],
    }


def bar(name: str, value: float, text: str) -> Part:
    """Return a bar, and the text that states its value."""
    return {"name": name, "value": value, "text": text}


def bars(title: str, rows: Sequence[Part], *, full: float = 0, text: str = "") -> Part:
    """Return a chart of bars; one of the size `full`, or else the longest, fills the width."""
    return {"kind": "bars", "title": title, "text": text, "rows": list(rows), "full": full}


def time_bars(title: str, seconds: Mapping[str, float], *, text: str = "") -> Part:
    """Return a chart of times by name."""
    longest = max(seconds.values(), default=0.0)
    rows = [bar(name, value, format_duration(value, longest)) for name, value in seconds.items()]
    return bars(title, rows, text=text)


def table(title: str, rows: Sequence[Mapping[str, Any]]) -> Part:
    """Return a table of the columns that have a value in any row, in order of first appearance."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in names if any(row.get(name) is not None for row in rows)]
    cells = [[format_value(name, row.get(name)) for name in columns] for row in rows]
    return {"title": title, "columns": columns, "rows": cells}


def pairs(title: str, values: Mapping[str, Any]) -> Part:
    """Return a table of names and values; a nested mapping has a row for each of its values."""
    rows = [{"name": name, "value": format_value(key, value)} for name, key, value in _flat(values)]
    return table(title, rows)


def number(row: Mapping[str, Any], name: str) -> float | None:
    """Return the finite number in a column of a row, or None."""
    value: Any = row.get(name)
    return value if is_number(value) and is_finite(value) else None


def mapping(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the mapping in a column of a row; an empty one if there is none."""
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str, Any]]:
    """Yield the full name, the last part of the name and the value of each item."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(key), value
