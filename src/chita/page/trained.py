"""The page of `chita gradual`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chita.bench import gradual_paper
from chita.gradual.methods import METHODS
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
PUBLISHED = {"mobilenetv1": gradual_paper.MOBILENETV1, "resnet50": gradual_paper.RESNET50}


def gradual_page(folder: Folder, record: Record) -> Part:
    """Headline figures, and the sections of a network that was trained sparse."""
    network, method = str(record.get("network", "network")), str(record.get("method", "gradual"))
    title = METHODS[method].title if method in METHODS else method
    epochs: Rows = record["epochs"]
    seconds = number(record, "seconds")
    return {
        "title": f"{network} trained sparse by {title}",
        "lead": lead(f"chita gradual {network}", record),
        "facts": [
            *headline(record),
            fact("epochs", f"{len(epochs)}"),
            *([] if seconds is None else [fact("time", f"{seconds:.2f} s")]),
        ],
        "sections": [
            _accuracy_section(record, network, epochs),
            *([_epoch_section(epochs), _time_section(epochs)] if epochs else []),
            *remains_sections(folder, record.get("layers", [])),
        ],
    }


def _accuracy_section(record: Record, network: str, epochs: Rows) -> Part:
    """The epochs, beside the paper's points for the network."""
    published = PUBLISHED.get(network, ())
    dense = number(record, "dense_accuracy")
    ours = [
        point(x, y, f"epoch {row.get('epoch')}")
        for row in epochs
        if (x := number(row, "sparsity")) is not None and (y := number(row, "accuracy")) is not None
    ]
    methods = dict.fromkeys(row.method for row in published)
    curves = [
        series(
            f"{method}, paper",
            [point(r.sparsity / 100, r.accuracy) for r in published if r.method == method],
            style="paper",
            colour=colour,
        )
        for colour, method in enumerate(methods, start=1)
    ]
    chart = lines(
        "Test accuracy against sparsity, epoch by epoch",
        axis("sparsity", "share"),
        axis("test accuracy", "percent"),
        [*curves, series("this run", ours, style="dots")],
        levels=None if dense is None else {"dense, this run": dense},
    )
    text = "" if published else "The paper states no figures for this network."
    return section("Accuracy", text, charts=[chart])


def _epoch_section(epochs: Rows) -> Part:
    charts = [
        _by_epoch("Test accuracy", axis("test accuracy", "percent"), epochs, "accuracy"),
        _by_epoch("Training loss", axis("mean loss"), epochs, "loss"),
        _by_epoch("Sparsity", axis("sparsity", "share"), epochs, "sparsity"),
        _by_epoch("Learning rate", axis("learning rate"), epochs, "learning_rate"),
    ]
    return section(
        "Epochs",
        charts=[chart for chart in charts if chart["series"]],
        tables=[table("All epochs", epochs)],
    )


def _by_epoch(title: str, y: Part, epochs: Rows, column: str) -> Part:
    points = [
        point(row.get("epoch", place), value, "after a pruning step" if row.get("pruned") else "")
        for place, row in enumerate(epochs, start=1)
        if (value := number(row, column)) is not None
    ]
    return lines(title, axis("epoch", "count"), y, [series(y["label"], points)])


def _time_section(epochs: Rows) -> Part:
    rows = [
        bar(
            str(row.get("epoch", place)),
            [0.0, value] if row.get("pruned") else [value, 0.0],
            f"{value:.2f} s",
        )
        for place, row in enumerate(epochs, start=1)
        if (value := number(row, "seconds")) is not None
    ]
    parts = ["training", "with a pruning step"]
    return section("Time", charts=[bars("Seconds of each epoch", "epoch", "seconds", parts, rows)])
