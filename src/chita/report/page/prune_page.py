"""The page of `chita prune`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chita.report import published as paper
from chita.report.page.common_sections import common_sections, headline, lead
from chita.report.page.curves import Rows, accuracy_section, by_number
from chita.report.page.folder import Folder, Record
from chita.report.page.parts import (
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
    show,
    table,
)

SECONDS = "_seconds"  # the suffix of the columns with the times of a stage


def prune_page(folder: Folder, record: Record) -> Part:
    """Return the page of a one-shot run: headline figures and sections."""
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
            *common_sections(folder, record.get("layers", [])),
        ],
    }


def _costs(record: Record) -> list[Part]:
    facts = []
    objective, memory = number(record, "objective"), number(record, "peak_memory_bytes")
    total = number(record.get("seconds") or {}, "total")
    if objective is not None:
        facts.append(fact("objective", f"{objective:.4g}", "Q after the last stage"))
    counts = record.get("counts") or {}
    pruned, dense = number(counts, "pruned_bytes"), number(counts, "dense_bytes")
    if pruned is not None and dense is not None:
        facts.append(
            fact("bit masks and values", f"{pruned / 1e3:,.1f} kB", f"of {dense / 1e3:,.1f} kB")
        )
    if gradients := number(record, "sample_gradients"):
        stages = len(record["stages"])
        unit = "stage" if stages == 1 else "stages"
        facts.append(fact("sample gradients", f"{gradients:,.0f}", f"in {stages} {unit}"))
    if total is not None:
        facts.append(fact("time", f"{total:.2f} s"))
    if memory is not None:
        facts.append(fact("peak memory", f"{memory / 1e6:,.0f} MB"))
    return facts


def _accuracy_section(record: Record, network: str) -> Part:
    """Return a section with this run and the paper's curves for its network."""
    sparsity, accuracy = number(record, "sparsity"), number(record, "accuracy")
    ours = [] if sparsity is None or accuracy is None else [point(sparsity, accuracy)]
    published = {
        paper.NAMES[method]: [
            point(x, y) for x, y in zip(paper.SPARSITIES[network], figures, strict=True)
        ]
        for method, figures in paper.ACCURACY.get(network, {}).items()
    }
    text = (
        f"The paper's figures are for its own dense network ({paper.DENSE[network]:.2f} %), "
        "not for the network pruned here."
        if published
        else ""
    )
    return accuracy_section("Test accuracy against sparsity", record, ours, published, text)


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
        _by_stage(
            "What the mask, the solve and the training leave",
            axis("held-out loss"),
            stages if any(number(row, "recovery_steps") for row in stages) else [],
            {
                "mask_loss": "mask alone",
                "solved_loss": "before the training",
                "choice_loss": "after it",
            },
        ),
        _by_stage("Ridge of each stage", axis("lambda", log=True), stages, {"ridge": "lambda"}),
        _tried(stages),
        _by_stage(
            "Sparsity of each stage", axis("sparsity", "share"), stages, {"sparsity": "sparsity"}
        ),
    ]
    return section(
        "Stages",
        charts=[chart for chart in charts if chart["series"] and len(stages) > 1],
        tables=[table("All stages", [_row(stage) for stage in stages])],
    )


def _by_stage(title: str, y: Part, stages: Rows, columns: Mapping[str, str]) -> Part:
    """Return a chart of some columns over the stages; text columns become notes of the points."""
    return by_number(title, y, stages, columns, what="stage", note=_words)


def _tried(stages: Rows) -> Part:
    """Return a chart of the held-out losses of each stage's candidates, and of the chosen one."""
    tried, chosen = [], []
    for place, row in enumerate(stages, start=1):
        stage, loss = row.get("stage", place), number(row, "held_out_loss")
        for candidate in row.get("candidates") or []:
            value = number(candidate, "loss") if isinstance(candidate, Mapping) else None
            if value is not None:
                tried.append(point(stage, value, show("candidate", candidate)))
        if loss is not None:
            chosen.append(point(stage, loss, _words(row)))
    curves = [series("tried", tried, style="dots", colour=7), series("chosen", chosen)]
    return lines(
        "Candidates of each stage, and the choice",
        axis("stage", "count"),
        axis("held-out loss"),
        curves if tried else [],
    )


def _row(stage: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the stage as a row of the table, with the number of its candidates."""
    candidates = stage.get("candidates")
    return {**stage, "candidates": len(candidates)} if candidates else stage


def _words(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items() if isinstance(value, str))


def _time_section(record: Record, stages: Rows) -> list[Part]:
    """Return charts of the seconds by part, in total and for each stage, if recorded."""
    charts = []
    seconds = record.get("seconds") or {}
    parts = {name: value for name in seconds if (value := number(seconds, name)) is not None}
    total = parts.pop("total", None)
    if parts and total is not None:
        parts["the rest"] = max(total - sum(parts.values()), 0.0)
        rows = [bar(name, [value], f"{value:.2f} s") for name, value in parts.items()]
        charts.append(bars("Seconds in total", "part", "seconds", ["seconds"], rows))
    columns = dict.fromkeys(name for row in stages for name in row if name.endswith(SECONDS))
    if columns and len(stages) > 1:
        rows = []
        for place, row in enumerate(stages, start=1):
            spent = [number(row, name) or 0.0 for name in columns]
            rows.append(bar(str(row.get("stage", place)), spent, f"{sum(spent):.2f} s"))
        names = [name.removesuffix(SECONDS) for name in columns]
        charts.append(bars("Seconds of each stage", "stage", "seconds", names, rows))
    return [section("Time", charts=charts)] if charts else []
