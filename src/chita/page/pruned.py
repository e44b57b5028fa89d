"""The page of `chita prune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chita.bench import paper
from chita.page.folder import Folder, Record
from chita.page.parts import (
    Part,
    axis,
    bar,
    bars,
    fact,
    lines,
    number,
    point,
    section,
    series,
    table,
)
from chita.page.remains import headline, lead, remains_sections

Rows = Sequence[Mapping[str, Any]]


def prune_page(folder: Folder, record: Record) -> Part:
    """Headline figures, and the sections of a one-shot run."""
    network, method = str(record.get("network", "network")), str(record.get("method", "prune"))
    stages: Rows = record["stages"]
    return {
        "title": f"{network} pruned by {paper.NAMES.get(method, method)}",
        "lead": lead(f"chita prune {network}", record),
        "facts": [*headline(record), *_costs(record)],
        "sections": [
            _accuracy_section(record, network),
            *([_stage_section(stages)] if stages else []),
            *_time_section(record, stages),
            *remains_sections(folder, record.get("layers", [])),
        ],
    }


def _costs(record: Record) -> list[Part]:
    facts = []
    objective, memory = number(record, "objective"), number(record, "peak_memory_bytes")
    total = number(record.get("seconds") or {}, "total")
    if objective is not None:
        facts.append(fact("objective", f"{objective:.4g}", "Q after the last stage"))
    if total is not None:
        facts.append(fact("time", f"{total:.2f} s"))
    if memory is not None:
        facts.append(fact("peak memory", f"{memory / 1e6:,.0f} MB"))
    return facts


def _accuracy_section(record: Record, network: str) -> Part:
    """This run beside the paper's curves for its network."""
    sparsity, accuracy = number(record, "sparsity"), number(record, "accuracy")
    dense = number(record, "dense_accuracy")
    ours = [] if sparsity is None or accuracy is None else [point(sparsity, accuracy)]
    published = paper.ACCURACY.get(network, {})
    curves = [
        series(
            f"{paper.NAMES[method]}, paper",
            [point(x, y) for x, y in zip(paper.SPARSITIES[network], figures, strict=True)],
            style="paper",
            colour=place,
        )
        for place, (method, figures) in enumerate(published.items(), start=1)
    ]
    text = (
        "The paper's figures are for its own dense network"
        f" ({paper.DENSE[network]:.2f} %), whatever was pruned here."
        if published
        else "The paper states no figures for this network."
    )
    chart = lines(
        "Test accuracy against sparsity",
        axis("sparsity", "share"),
        axis("test accuracy", "percent"),
        [*curves, series("this run", ours, style="dots")],
        levels=None if dense is None else {"dense, this run": dense},
    )
    return section("Accuracy", text, charts=[chart])


def _stage_section(stages: Rows) -> Part:
    objective = [value for row in stages if (value := number(row, "objective")) is not None]
    y = axis("objective Q", log=bool(objective) and min(objective) > 0)
    charts = [
        _by_stage("Objective after each stage", y, stages, {"objective": "objective"}),
        _by_stage(
            "Loss of each stage",
            axis("mean loss"),
            stages,
            {"loss": "calibration, before the stage", "held_out_loss": "held out, after it"},
        ),
        _by_stage("Ridge of each stage", axis("lambda", log=True), stages, {"ridge": "lambda"}),
        _by_stage(
            "Sparsity of each stage", axis("sparsity", "share"), stages, {"sparsity": "sparsity"}
        ),
    ]
    return section(
        "Stages",
        charts=[chart for chart in charts if chart["series"] and len(stages) > 1],
        tables=[table("All stages", stages)],
    )


def _by_stage(title: str, y: Part, stages: Rows, columns: Mapping[str, str]) -> Part:
    """Some columns over the stages; what a stage says in words goes with its points."""
    curves = [
        series(
            name,
            [
                point(row.get("stage", place), value, _words(row))
                for place, row in enumerate(stages, start=1)
                if (value := number(row, column)) is not None and not (y["log"] and value <= 0)
            ],
            colour=colour,
        )
        for colour, (column, name) in enumerate(columns.items())
    ]
    return lines(title, axis("stage", "count"), y, curves)


def _words(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items() if isinstance(value, str))


def _time_section(record: Record, stages: Rows) -> list[Part]:
    seconds = record.get("seconds") or {}
    charts = []
    if {"gradients", "solve", "total"} <= set(seconds):
        spent = [seconds["gradients"], seconds["solve"]]
        rest = max(seconds["total"] - sum(spent), 0.0)
        parts = {"gradients": spent[0], "solves": spent[1], "the rest": rest}
        rows = [bar(name, [value], f"{value:.2f} s") for name, value in parts.items()]
        charts.append(bars("Seconds in all", "part", "seconds", ["seconds"], rows))
    rows = [
        bar(str(row.get("stage", place)), [gradients, solve], f"{gradients + solve:.2f} s")
        for place, row in enumerate(stages, start=1)
        if (gradients := number(row, "gradient_seconds")) is not None
        and (solve := number(row, "solve_seconds")) is not None
    ]
    if len(rows) > 1:
        charts.append(
            bars("Seconds of each stage", "stage", "seconds", ["gradients", "solve"], rows)
        )
    return [section("Time", charts=charts)] if charts else []
