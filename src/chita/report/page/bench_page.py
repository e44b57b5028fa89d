"""The page of `chita bench` and `chita demo`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from chita.report.page.benchmark_charts import OLD_NAMES, VIEWS, View
from chita.report.page.folder import Benchmark
from chita.report.page.parts import Part, fact, fold, number, section, table, time_bars
from chita.report.page.text import format_share
from chita.report.page.view_charts import Row, is_ours, view_charts, with_title

MOST_FACTS = 6
MOST_CHARTS = 4  # of a benchmark that are visible; the others are folded
MOST_TEXT = 300  # characters of an introduction that is visible


def bench_page(benchmarks: Sequence[Benchmark]) -> Part:
    """Return the page: headline figures and chart, and a section for each benchmark."""
    order = [*VIEWS, *(b.name for b in benchmarks if b.name not in VIEWS)]
    benchmarks = sorted(benchmarks, key=lambda benchmark: order.index(benchmark.name))
    facts = [item for benchmark in benchmarks for item in _best_accuracies(benchmark)]
    sections = [_section(benchmark) for benchmark in benchmarks]
    title, headline = "The paper's tables and figures, reproduced", _take_first_chart(sections)
    if len(benchmarks) == 1:
        title, sections[0]["title"] = sections[0]["title"], "More results"
    return {
        "title": title,
        "lead": f"chita bench {', '.join(benchmark.name for benchmark in benchmarks)}",
        "facts": facts[:MOST_FACTS],
        "headline": headline,
        "sections": [
            *(each for each in sections if each["charts"] or each["text"]),
            *(each for benchmark in benchmarks for each in _time_section(benchmark)),
        ],
        "folds": [each for benchmark in benchmarks for each in _folds(benchmark)],
    }


def with_benchmarks(page: Part, benchmarks: Sequence[Benchmark]) -> Part:
    """Return the page of a run whose folder has benchmarks, too: these are its headline."""
    if not benchmarks:
        return page
    bench = bench_page(benchmarks)
    headline, own = bench["headline"] or page["headline"], []
    if bench["headline"] and page["headline"]:
        own = [fold("The run in this folder", charts=[page["headline"]])]
    return {
        **page,
        "headline": headline,
        "sections": [*bench["sections"], *page["sections"]],
        "folds": [*own, *bench["folds"], *page["folds"]],
    }


def _section(benchmark: Benchmark) -> Part:
    """Return the first charts of a benchmark, and its introduction unless that is long."""
    shown, _ = _charts(benchmark)
    text = benchmark.text if len(benchmark.text) <= MOST_TEXT else ""
    return section(benchmark.title, text, charts=shown)


def _folds(benchmark: Benchmark) -> list[Part]:
    """Return a long introduction, the other charts, and all rows."""
    name, (_, more) = benchmark.name, _charts(benchmark)
    rows = [with_title(row) for row in benchmark.rows]
    folds = [
        fold(f"About {name}", benchmark.text if len(benchmark.text) > MOST_TEXT else ""),
        fold(f"More charts of {name}", charts=more),
        fold(f"All rows of {name}", tables=[table(f"All rows of {name}", rows)] if rows else []),
    ]
    return [each for each in folds if each["text"] or each["charts"] or each["tables"]]


def _charts(benchmark: Benchmark) -> tuple[list[Part], list[Part]]:
    """Return the charts of a benchmark that are always visible, and those that are folded."""
    rows = [with_title(row) for row in benchmark.rows]
    first, *others = [view_charts(view, rows) for view in _views(benchmark)] or [[]]
    more = [*first[MOST_CHARTS:], *(chart for charts in others for chart in charts)]
    return first[:MOST_CHARTS], more


def _views(benchmark: Benchmark) -> tuple[View, ...]:
    return VIEWS.get(OLD_NAMES.get(benchmark.name, benchmark.name), ())


def _take_first_chart(sections: Sequence[Part]) -> Part | None:
    """Remove the first chart from the sections, and return it."""
    for each in sections:
        if each["charts"]:
            chart: Part = each["charts"].pop(0)
            return chart
    return None


def _best_accuracies(benchmark: Benchmark) -> list[Part]:
    """Return our best accuracy at the highest sparsity of each network, and the best other one."""
    known = [
        with_title(row)
        for row in benchmark.rows
        if isinstance(row.get("network"), str)
        and number(row, "accuracy") is not None
        and 0 < (number(row, "sparsity") or 0) < 1
    ]
    facts = []
    for network in dict.fromkeys(row["network"] for row in known):
        here = [row for row in known if row["network"] == network]
        sparsity = max(row["sparsity"] for row in here)
        compared = [row for row in here if row["sparsity"] == sparsity]
        ours = _best([row for row in compared if is_ours(row.get("method"))])
        if ours is not None:
            other = _best([row for row in compared if not is_ours(row.get("method"))])
            label = f"{network}, {format_share(sparsity)} sparse"
            facts.append(fact(label, f"{ours['accuracy']:.2f} %", _note(ours, other)))
    return facts


def _best(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda row: float(row["accuracy"]), default=None)


def _note(ours: Row, other: Row | None) -> str:
    words = [str(ours.get("method"))]
    if (paper := number(ours, "paper")) is not None:
        words.append(f"paper: {paper:.2f} %")
    if other is not None:
        words.append(f"best other: {other.get('method')}, {other['accuracy']:.2f} %")
    return "; ".join(words)


def _time_section(benchmark: Benchmark) -> list[Part]:
    """Return the mean time of each method, if rows have methods and seconds that no chart shows."""
    if any("seconds" in view.y for view in _views(benchmark)):
        return []
    times: dict[str, list[float]] = {}
    for row in map(with_title, benchmark.rows):
        seconds = number(row, "seconds")
        if seconds is not None and row.get("method") is not None:
            times.setdefault(str(row["method"]), []).append(seconds)
    if len(times) < 2:
        return []
    means = {name: statistics.mean(seconds) for name, seconds in times.items()}
    text = "The mean over all rows of a method."
    chart = time_bars("Mean time of each method", means, text=text)
    return [section(f"Time of {benchmark.name}", charts=[chart])]
