"""The page of `chita prune`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chita.report import published as paper
from chita.report.page.curves import Rows
from chita.report.page.folder import Folder, Record
from chita.report.page.headline import before_and_after, beside_the_paper, facts_of, lead
from chita.report.page.layers import layer_parts
from chita.report.page.parts import Part, mapping, number, point, section, time_bars
from chita.report.page.settings import settings_folds
from chita.report.page.stage_charts import PURPOSES, along_the_stages, gains_section, stages_fold


def prune_page(folder: Folder, record: Record, defaults: Mapping[str, Any]) -> Part:
    """Return the page of a one-shot run.

    Args:
        folder: the files of the run.
        record: its record, with stages.
        defaults: the default values of settings, by name.
    """
    network, method = str(record.get("network", "network")), str(record.get("method", "prune"))
    stages: Rows = record["stages"]
    layers, folds = layer_parts(folder, record)
    return {
        "title": f"{network} pruned by {paper.NAMES.get(method, method)}",
        "lead": lead(f"chita prune {network}", record),
        "facts": facts_of(record),
        "headline": _headline(record, network, stages),
        "sections": [*_stage_sections(record, network, stages), *layers, *_time_section(record)],
        "folds": [
            *([stages_fold(stages)] if stages else []),
            *folds,
            *settings_folds(folder, defaults),
        ],
    }


def _headline(record: Record, network: str, stages: Rows) -> Part | None:
    """Return the run beside the paper's methods, or else its stages, or else before and after."""
    if _is_comparable(record, network):
        return _beside_the_paper(record, network)
    states = {"dense": "dense_{}", "pruned": "{}"}
    return along_the_stages(stages) or before_and_after(record, states)


def _is_comparable(record: Record, network: str) -> bool:
    """Return whether the paper has figures for the network, and the run an accuracy."""
    known = all(number(record, name) is not None for name in ("sparsity", "accuracy"))
    return known and network in paper.ACCURACY


def _beside_the_paper(record: Record, network: str) -> Part:
    sparsities = paper.SPARSITIES[network]
    published = {
        paper.NAMES[method]: [point(x, y) for x, y in zip(sparsities, figures, strict=True)]
        for method, figures in paper.ACCURACY[network].items()
    }
    text = (
        f"The paper's figures are for its own dense network ({paper.DENSE[network]:.2f} %), "
        "not for the network pruned here."
    )
    ours = [point(record["sparsity"], record["accuracy"])]
    return beside_the_paper(record, ours, published, text)


def _stage_sections(record: Record, network: str, stages: Rows) -> list[Part]:
    """Return what each part gained; without training, the stages, unless they are the headline."""
    gains = gains_section(record, stages)
    chart = along_the_stages(stages) if _is_comparable(record, network) else None
    if gains is not None:
        return [gains]
    return [] if chart is None else [section("Stages", charts=[chart])]


def _time_section(record: Record) -> list[Part]:
    """Return a chart of the seconds by purpose, if recorded."""
    seconds = mapping(record, "seconds")
    total = number(seconds, "total")
    parts = {
        name: value
        for key, _, name in PURPOSES
        if (value := number(seconds, key)) is not None and value > 0
    }
    if not parts or total is None:
        return []
    parts["the rest"] = max(total - sum(parts.values()), 0.0)
    return [section("Time", charts=[time_bars("Time by purpose", parts)])]
