"""The page of `chita bench` and `chita demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chita.report import published as paper
from chita.report.page.benchmark_charts import OLD_NAMES, VIEWS, View
from chita.report.page.folder import Benchmark
from chita.report.page.parts import (
    Part,
    axis,
    fact,
    lines,
    number,
    point,
    section,
    series,
    show,
    table,
)

Row = Mapping[str, Any]
OURS = "CHITA"  # the prefix of the names of the paper's methods
SPEAKING = ("network", "method", "choice", "schedule", "run")
WHOLE = "whole"  # the curve of the rows without a block size


def bench_page(benchmarks: Sequence[Benchmark]) -> Part:
    """Return the page: headline figures, and a section for each benchmark."""
    order = [*VIEWS, *(b.name for b in benchmarks if b.name not in VIEWS)]
    benchmarks = sorted(benchmarks, key=lambda benchmark: order.index(benchmark.name))
    return {
        "title": "The paper's tables and figures, reproduced",
        "lead": f"chita bench {', '.join(benchmark.name for benchmark in benchmarks)}",
        "facts": [item for benchmark in benchmarks for item in _best_accuracies(benchmark)],
        "sections": [bench_section(benchmark) for benchmark in benchmarks],
    }


def bench_section(benchmark: Benchmark) -> Part:
    """Return the charts of a benchmark, and all of its rows."""
    views = VIEWS.get(OLD_NAMES.get(benchmark.name, benchmark.name), ())
    rows = [_with_titles(row) for row in benchmark.rows]
    return section(
        benchmark.title,
        benchmark.text,
        charts=[chart for view in views for chart in _charts(view, rows)],
        tables=[table("All rows", rows)] if rows else [],
    )


def _best_accuracies(benchmark: Benchmark) -> list[Part]:
    """Return, for each network of the paper, the best accuracy at the highest sparsity."""
    known = [
        row
        for row in benchmark.rows
        if number(row, "accuracy") is not None and number(row, "paper") is not None
    ]
    facts = []
    for network in dict.fromkeys(row["network"] for row in known):
        here = [row for row in known if row["network"] == network]
        sparsity = max(row["sparsity"] for row in here)
        best = max((r for r in here if r["sparsity"] == sparsity), key=lambda r: r["accuracy"])
        label = f"{network}, {sparsity:.0%} sparse"
        note = f"{paper.NAMES.get(best['method'], best['method'])}; paper: {best['paper']:.2f} %"
        facts.append(fact(label, f"{best['accuracy']:.2f} %", note))
    return facts


def _charts(view: View, rows: Sequence[Row]) -> list[Part]:
    """Return a chart for each panel that has results of ours."""
    drawn = [row for row in rows if view.where(row)]
    kinds = dict.fromkeys(_kind(row, view.curve) for row in drawn)
    ours_first = sorted(kinds, key=lambda kind: not kind.startswith(OURS))
    colours = {kind: place for place, kind in enumerate(ours_first)}
    charts = []
    for panel in dict.fromkeys(_kind(row, view.panel) for row in drawn):
        here = [row for row in drawn if _kind(row, view.panel) == panel]
        if any(number(row, y) is not None for row in here for y in view.y):
            charts.append(_chart(view, panel, here, colours))
    return charts


def _chart(view: View, panel: str, rows: Sequence[Row], colours: Mapping[str, int]) -> Part:
    names = [_name(view.x, value) for value in _places(view, rows)] if view.named else None
    levels = {}
    if "paper" in rows[0] and (network := paper.paper_network(rows[0]["network"])) in paper.DENSE:
        levels = {"dense, paper": paper.DENSE[network]}
    return lines(
        f"{panel}: {view.title}" if panel else view.title,
        axis(_label(view.x), view.x_form, log=view.log_x, names=names),
        axis(_label(view.y[0]) if len(view.y) == 1 else "seconds", view.y_form, log=view.log_y),
        _curves(view, rows, colours),
        levels=levels if view.y == ("accuracy",) else None,
    )


def _curves(view: View, rows: Sequence[Row], colours: Mapping[str, int]) -> list[Part]:
    """Return a curve for each kind of row and column of y, then the paper's dots."""
    places = _places(view, rows)
    curves, published = [], []
    for kind in dict.fromkeys(_kind(row, view.curve) for row in rows):
        here = [row for row in rows if _kind(row, view.curve) == kind]
        for offset, y in enumerate(view.y):
            name = (kind or WHOLE) if len(view.y) == 1 else f"{kind}, {y}"
            style = "bold" if kind.startswith(OURS) else "line"
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
    values = list(dict.fromkeys(row.get(view.x) for row in rows))
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


def _kind(row: Row, columns: Sequence[str]) -> str:
    """Return the name of a row's curve; a number is preceded by the name of its column."""
    words = []
    for column in columns:
        if row.get(column) is not None:
            name = _name(column, row[column])
            words.append(name if column in SPEAKING else f"{_label(column)} {name}")
    return ", ".join(words)


def _name(column: str, value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else show(column, value)


def _label(column: str) -> str:
    return {"accuracy": "test accuracy"}.get(column, column.replace("_", " "))


def _with_titles(row: Row) -> Row:
    """Return the row with the paper's name of its method."""
    method = row.get("method")
    return {**row, "method": paper.NAMES[method]} if method in paper.NAMES else row
