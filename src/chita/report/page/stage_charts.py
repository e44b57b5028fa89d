"""The stages of a run: loss against sparsity, what each part gained, and the details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chita.report.page.curves import Rows, by_number, place_of
from chita.report.page.folder import Record
from chita.report.page.parts import (
    Part,
    axis,
    bar,
    bars,
    fold,
    lines,
    mapping,
    number,
    point,
    section,
    series,
    table,
)
from chita.report.page.text import format_value

PURPOSES = (  # of the time: the key of a run, the column of a stage, the name for readers
    ("gradients", "gradient_seconds", "gradients"),
    ("solve", "solve_seconds", "solves"),
    ("held_out", "held_out_seconds", "held-out losses"),
    ("recovery", "recovery_seconds", "training"),
)
PARTS = {
    "mask_loss": "mask alone",
    "solved_loss": "after the solve",
    "choice_loss": "after training",
}

# Column, axis and standard error, of samples that are not used for any choice except the floor.
MEASURES = (
    ("accuracy", axis("held-out accuracy", "percent"), ""),
    ("held_out_loss", axis("held-out loss"), "held_out_error"),
)


def along_the_stages(stages: Rows) -> Part | None:
    """Return the held-out accuracy or else loss against sparsity; None for fewer than two stages.

    The accuracy is measured for min_accuracy only. Stages that missed the floor and were undone
    are a series of their own.
    """
    for column, y, error in MEASURES:
        accepted, undone = (
            [
                point(x, value, f"stage {place_of(row, 'stage', place):g}", number(row, error))
                for place, row in enumerate(stages, start=1)
                if (row.get("accepted") is not False) == kept
                and (x := number(row, "sparsity")) is not None
                and (value := number(row, column)) is not None
            ]
            for kept in (True, False)
        )
        if len(accepted) + len(undone) > 1:
            return lines(
                f"{y['label'].capitalize()} against sparsity, stage by stage",
                axis("sparsity", "share"),
                y,
                [
                    series("this run", accepted, style="bold"),
                    series("undone: below the floor", undone, style="dots", colour=1),
                ],
            )
    return None


def gains_section(record: Record, stages: Rows) -> Part | None:
    """Return what the mask, the solve, the training and the repairs did to the held-out loss."""
    trained = [row for row in stages if number(row, "recovery_steps")]
    text = " ".join([*_totals(record), *_repairs(record)])
    chart = _parts_of_stages(trained) if trained else None
    if chart is None and not text:
        return None
    return section("What each part gained", text, charts=[] if chart is None else [chart])


def _parts_of_stages(stages: Rows) -> Part | None:
    """Return the losses after each part: curves over the stages, or bars of a single stage."""
    title = "Held-out loss with the mask alone, after the solve and after the training"
    if len(stages) > 1:
        chart = by_number(title, axis("held-out loss"), stages, PARTS, what="stage", note=_words)
        return chart if chart["series"] else None
    losses = {name: number(stages[0], column) for column, name in PARTS.items()}
    rows = [bar(name, loss, f"{loss:.4g}") for name, loss in losses.items() if loss is not None]
    return bars(title, rows) if rows else None


def _totals(record: Record) -> list[str]:
    """Return a sentence on what the solves and the training changed over all stages."""
    gains = mapping(record, "gains")
    parts = (("the solves", "solve"), ("the training", "recovery"))
    changes = [
        f"{what} {_change(gain)}" for what, key in parts if (gain := number(gains, key)) is not None
    ]
    return [f"Over all stages, {', and '.join(changes)}."] if changes else []


def _change(gain: float) -> str:
    if not gain:
        return "did not change the held-out loss"
    return f"{'lowered' if gain > 0 else 'raised'} the held-out loss by {abs(gain):.4g}"


def _repairs(record: Record) -> list[str]:
    rows = record.get("repairs")
    sentences = []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, Mapping) and row.get("kept"):
            before, after = number(row, "loss_before"), number(row, "loss_after")
            if before is not None and after is not None:
                what = f"The repair of {row.get('repair')} changed the held-out loss"
                sentences.append(f"{what} from {before:.4g} to {after:.4g}.")
    return sentences


def stages_fold(stages: Rows) -> Part:
    """Return the charts of objective, losses, candidates, ridge and seconds, and all stages."""
    objective = [value for row in stages if (value := number(row, "objective")) is not None]
    y = axis("objective Q", log=bool(objective) and min(objective) > 0)
    losses = {"loss": "calibration, before the stage", "held_out_loss": "held out, after it"}
    seconds = {
        column: name for _, column, name in PURPOSES if any(number(row, column) for row in stages)
    }
    charts = [
        _by_stage("Objective after each stage", y, stages, {"objective": "objective"}),
        _by_stage("Loss of each stage", axis("mean loss"), stages, losses),
        _tried(stages),
        _by_stage("Ridge of each stage", axis("lambda", log=True), stages, {"ridge": "lambda"}),
        _by_stage("Seconds of each stage", axis("time", "seconds"), stages, seconds),
    ]
    return fold(
        "Stages in detail",
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
        stage, loss = place_of(row, "stage", place), number(row, "held_out_loss")
        for candidate in _candidates(row):
            value = number(candidate, "loss") if isinstance(candidate, Mapping) else None
            if value is not None:
                tried.append(point(stage, value, format_value("candidate", candidate)))
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
    candidates = _candidates(stage)
    return {**stage, "candidates": len(candidates)} if candidates else stage


def _candidates(stage: Mapping[str, Any]) -> Sequence[Any]:
    candidates = stage.get("candidates")
    return candidates if isinstance(candidates, list) else []


def _words(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items() if isinstance(value, str))
