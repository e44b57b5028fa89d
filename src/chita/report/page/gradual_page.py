"""The page of `chita gradual`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chita.report import published
from chita.report.page.curves import Rows, by_number
from chita.report.page.folder import Folder, Record
from chita.report.page.headline import beside_the_paper, facts_of, lead
from chita.report.page.layers import layer_parts
from chita.report.page.parts import (
    Part,
    axis,
    bar,
    bars,
    fact,
    fold,
    number,
    point,
    section,
    table,
)
from chita.report.page.settings import settings_folds
from chita.report.page.text import format_duration

PUBLISHED = {"mobilenetv1": published.MOBILENETV1, "resnet50": published.RESNET50}


def gradual_page(folder: Folder, record: Record) -> Part:
    """Return the page of a gradual run."""
    network, method = str(record.get("network", "network")), str(record.get("method", "gradual"))
    title = record.get("method_title") or published.NAMES.get(method, method)
    epochs: Rows = record["epochs"]
    layers, folds = layer_parts(folder, record)
    return {
        "title": f"{network} trained sparse by {title}",
        "lead": lead(f"chita gradual {network}", record),
        "facts": [*facts_of(record), fact("epochs", f"{len(epochs)}")],
        "headline": _headline(record, network, epochs),
        "sections": [*layers, *_time_section(epochs)],
        "folds": [
            *([_epochs_fold(epochs)] if epochs else []),
            *folds,
            *settings_folds(folder, {}),
        ],
    }


def _headline(record: Record, network: str, epochs: Rows) -> Part | None:
    """Return the epochs and the paper's points for the network, against sparsity."""
    ours = [
        point(x, y, f"epoch {row.get('epoch')}")
        for row in epochs
        if (x := number(row, "sparsity")) is not None and (y := number(row, "accuracy")) is not None
    ]
    stated: dict[str, list[Part]] = {}
    for row in PUBLISHED.get(network, ()):
        stated.setdefault(row.method, []).append(point(row.sparsity / 100, row.accuracy))
    text = "Each point of this run is an epoch."
    return beside_the_paper(record, ours, stated, text) if ours or stated else None


def _epochs_fold(epochs: Rows) -> Part:
    charts = [
        _by_epoch("Test accuracy", axis("test accuracy", "percent"), epochs, "accuracy"),
        _by_epoch("Training loss", axis("mean loss"), epochs, "loss"),
        _by_epoch("Sparsity", axis("sparsity", "share"), epochs, "sparsity"),
        _by_epoch("Learning rate", axis("learning rate"), epochs, "learning_rate"),
        _by_epoch("Seconds", axis("time", "seconds"), epochs, "seconds"),
    ]
    return fold(
        "Epochs in detail",
        charts=[chart for chart in charts if chart["series"]],
        tables=[table("All epochs", epochs)],
    )


def _by_epoch(title: str, y: Part, epochs: Rows, column: str) -> Part:
    title = f"{title} of each epoch"
    return by_number(title, y, epochs, {column: y["label"]}, what="epoch", note=_pruned)


def _pruned(row: Mapping[str, Any]) -> str:
    return "after a pruning step" if row.get("pruned") else ""


def _time_section(epochs: Rows) -> list[Part]:
    """Return a bar for the epochs with a pruning step and one for the others."""
    rows = []
    for name, pruned in (("training only", False), ("with a pruning step", True)):
        times = [number(row, "seconds") for row in epochs if bool(row.get("pruned")) == pruned]
        known = [seconds for seconds in times if seconds is not None]
        if known:
            unit = "epoch" if len(known) == 1 else "epochs"
            text = f"{format_duration(sum(known))} in {len(known)} {unit}"
            rows.append(bar(name, sum(known), text))
    return [section("Time", charts=[bars("Time of the epochs", rows)])] if rows else []
