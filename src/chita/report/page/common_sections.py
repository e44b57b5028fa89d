"""The sections that all runs have: the layers, the masks and the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chita.report.page.folder import Folder
from chita.report.page.masks import mask_pictures
from chita.report.page.parts import Part, bar, bars, fact, section, show, table


def headline(record: Mapping[str, Any]) -> list[Part]:
    """Return the facts accuracy, sparsity and pattern, if the record has them."""
    facts = []
    if isinstance(record.get("accuracy"), float):
        dense = record.get("dense_accuracy")
        note = "" if dense is None else f"{dense:.2f} % dense"
        facts.append(fact("accuracy", f"{record['accuracy']:.2f} %", note))
    if isinstance(record.get("sparsity"), float):
        facts.append(fact("sparsity", f"{record['sparsity']:.2%}"))
    if record.get("pattern"):
        facts.append(fact("pattern", str(record["pattern"])))
    if "nonzeros" in record and "weights" in record:
        kept, weights = record["nonzeros"], record["weights"]
        facts.append(fact("weights kept", f"{kept:,}", f"of {weights:,}"))
    return facts


def lead(command: str, record: Mapping[str, Any]) -> str:
    """Return the command, and the data and seed if the record has them."""
    known = [f"{name} {record[name]}" for name in ("data", "seed") if record.get(name) is not None]
    return " · ".join([command, *known])


def common_sections(folder: Folder, layers: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Return the sections of layers, masks and settings.

    Args:
        folder: the files of the run.
        layers: the layers of the record; if empty, those of the masks are used.
    """
    names = [str(row.get("name")) for row in layers]
    pictures = [] if folder.masks is None else mask_pictures(folder.masks, names)
    rows = list(layers) or [_as_layer(picture) for picture in pictures]
    sections = []
    if rows:
        sections.append(_layer_section(rows))
    if pictures:
        text = (
            "Each weight tensor as a matrix of outputs by inputs. A stronger cell keeps more of "
            "its weights; large layers are drawn in patches."
        )
        sections.append(section("Masks", text, masks=pictures))
    sections.append(_settings_section(folder))
    return sections


def _as_layer(picture: Part) -> Part:
    weights, kept = picture["weights"], picture["kept"]
    return {
        "name": picture["name"],
        "shape": picture["shape"],
        "weights": weights,
        "nonzeros": kept,
        "sparsity": 1 - kept / weights if weights else 0.0,
    }


def _layer_section(rows: Sequence[Mapping[str, Any]]) -> Part:
    drawn = [
        bar(
            str(row["name"]).removesuffix(".weight"),  # short names fit a phone
            [row["nonzeros"] / row["weights"]],
            f"{row['nonzeros']:,} of {row['weights']:,}",
        )
        for row in rows
        if row.get("weights") and "nonzeros" in row and "name" in row
    ]
    chart = bars("Share of each layer that is kept", "layer", "share", ["kept"], drawn, full=1)
    return section("Layers", charts=[chart], tables=[table("All layers", rows)])


def _settings_section(folder: Folder) -> Part:
    record = folder.record or {}
    figures = {k: v for k, v in record.items() if k not in ("layers", "stages", "epochs")}
    tables = [
        table(
            title,
            [{"name": name, "value": show(name, value)} for name, value in values.items()],
            unfolded=title == "Settings",
        )
        for title, values in (("Settings", folder.config), ("All figures", figures))
        if values
    ]
    return section("Settings", tables=tables)
