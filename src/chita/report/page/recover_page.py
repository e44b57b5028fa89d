"""The page of `chita recover`."""

from __future__ import annotations

from chita.report.page.folder import Folder, Record
from chita.report.page.headline import before_and_after, facts_of, lead
from chita.report.page.layers import layer_parts
from chita.report.page.parts import Part, bar, bars, fact, number, section
from chita.report.page.settings import settings_folds


def recover_page(folder: Folder, record: Record) -> Part:
    """Return the page of the training of a pruned network."""
    network = str(record.get("network", "network"))
    layers, folds = layer_parts(folder, record)
    steps = number(record, "steps")
    states = {"dense": "dense_{}", "pruned": "{}_before", "recovered": "{}"}
    return {
        "title": f"{network} recovered after pruning",
        "lead": lead(f"chita recover {record.get('source', network)}", record),
        "facts": [
            *facts_of(record),
            *([] if steps is None else [fact("training steps", f"{steps:,}")]),
        ],
        "headline": before_and_after(record, states),
        "sections": [*_gain_section(record), *layers],
        "folds": [*folds, *settings_folds(folder, {})],
    }


def _gain_section(record: Record) -> list[Part]:
    """Return the held-out losses before and after the training."""
    before, after = number(record, "loss_before"), number(record, "loss_after")
    if before is None or after is None:
        return []
    rows = [
        bar("before the training", before, f"{before:.4g}"),
        bar("after the training", after, f"{after:.4g}"),
    ]
    undone = "The loss did not fall, so the network is unchanged."
    text = undone if record.get("kept") is False else ""
    return [section("What the training gained", text, charts=[bars("Held-out loss", rows)])]
