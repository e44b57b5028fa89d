"""What remains of each layer: bars of layers or groups of layers, and pictures of the masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chita.report.page.folder import Folder
from chita.report.page.masks import mask_pictures
from chita.report.page.parts import Part, bar, bars, fold, number, section, table
from chita.report.page.text import format_share

MOST = 36  # bars; a network with more layers is shown by its modules
MASKS = (
    "Each weight tensor is a matrix of outputs by inputs. A stronger cell keeps more of its "
    "weights; large layers are drawn in patches."
)


def layer_parts(folder: Folder, record: Mapping[str, Any]) -> tuple[list[Part], list[Part]]:
    """Return the section of layers, and the folds of all layers and of the masks.

    Without layers in the record, those of the masks are used.
    """
    layers = record.get("layers", [])
    names = [str(row.get("name")) for row in layers]
    pictures = [] if folder.masks is None else mask_pictures(folder.masks, names)
    rows = list(layers) or [_as_layer(picture) for picture in pictures]
    sections, folds = [], []
    if rows:
        kept = _kept(rows)
        groups = _grouped(kept)
        whole = "layer" if len(groups) == len(kept) else "module"
        if kept:
            sections.append(section("Layers", charts=[_bars(whole, groups)]))
        charts = [_bars("layer", kept)] if len(groups) < len(kept) else []
        folds.append(fold("All layers", charts=charts, tables=[table("All layers", rows)]))
    if pictures:
        folds.append(fold("Masks", MASKS, masks=pictures))
    return sections, folds


def _as_layer(picture: Part) -> Part:
    weights, kept = picture["weights"], picture["kept"]
    return {
        "name": picture["name"],
        "shape": picture["shape"],
        "weights": weights,
        "nonzeros": kept,
        "sparsity": 1 - kept / weights if weights else 0.0,
    }


Counts = dict[str, tuple[float, float]]  # the weights that are kept, and all, by name


def _kept(rows: Sequence[Mapping[str, Any]]) -> Counts:
    return {
        str(row["name"]).removesuffix(".weight"): (kept, weights)
        for row in rows
        if (weights := number(row, "weights"))
        and (kept := number(row, "nonzeros")) is not None
        and "name" in row
    }


def _grouped(layers: Counts) -> Counts:
    """Return the counts of the layers, or of modules at the greatest depth with at most MOST."""
    deepest = max((name.count(".") + 1 for name in layers), default=1)
    for depth in range(deepest, 0, -1):
        groups: Counts = {}
        for name, (kept, weights) in layers.items():
            module = ".".join(name.split(".")[:depth])
            before = groups.get(module, (0, 0))
            groups[module] = (before[0] + kept, before[1] + weights)
        if len(groups) <= MOST:
            break
    return groups


def _bars(what: str, counts: Counts) -> Part:
    rows = [
        bar(name, kept / weights, f"{format_share(kept / weights)}, {kept:,} of {weights:,}")
        for name, (kept, weights) in counts.items()
    ]
    return bars(f"Share of each {what} that is kept", rows, full=1)
