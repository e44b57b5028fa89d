"""The page of `chita gradual`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chita.report import published
from chita.report.page.common_sections import common_sections, headline, lead
from chita.report.page.curves import Rows, accuracy_section, by_number
from chita.report.page.folder import Folder, Record
from chita.report.page.parts import Part, axis, bar, bars, fact, number, point, section, table

PUBLISHED = {"mobilenetv1": published.MOBILENETV1, "resnet50": published.RESNET50}


def gradual_page(folder: Folder, record: Record) -> Part:
    """Return the page of a gradual run: headline figures and sections."""
    network, method = str(record.get("network", "network")), str(record.get("method", "gradual"))
    title = record.get("method_title") or published.NAMES.get(method, method)
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
            *common_sections(folder, record.get("layers", [])),
        ],
    }


def _accuracy_section(record: Record, network: str, epochs: Rows) -> Part:
    """Return a section with the epochs and the paper's points for the network."""
    ours = [
        point(x, y, f"epoch {row.get('epoch')}")
        for row in epochs
        if (x := number(row, "sparsity")) is not None and (y := number(row, "accuracy")) is not None
    ]
    stated: dict[str, list[Part]] = {}
    for row in PUBLISHED.get(network, ()):
        stated.setdefault(row.method, []).append(point(row.sparsity / 100, row.accuracy))
    title = "Test accuracy against sparsity, epoch by epoch"
    return accuracy_section(title, record, ours, stated)


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
    return by_number(title, y, epochs, {column: y["label"]}, what="epoch", note=_pruned)


def _pruned(row: Mapping[str, Any]) -> str:
    return "after a pruning step" if row.get("pruned") else ""


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
