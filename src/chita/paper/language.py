"""Language models: the perplexity that each method leaves, with its time and its memory.

All methods get the same 128 sequences. Those that are not registered are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chita.paper.cells import Record
from chita.paper.language_layout import draw_language, language_rows, language_text
from chita.paper.language_models import smollm, stories
from chita.paper.text_bench import Open, TextBench
from chita.paper.write import Report

# Arguments of chita.prune by the name in the tables. As in the papers of the rivals, magnitude
# prunes the same share of each layer.
CONTENDERS: dict[str, dict[str, Any]] = {
    "magnitude": {"method": "magnitude-uniform"},
    "Wanda": {"method": "wanda"},
    "SparseGPT": {"method": "sparsegpt"},
    "RIA": {"method": "ria"},
    "ALPS": {"method": "alps"},
    "L-OBS": {"method": "l-obs", "stages": 1},
    "CHITA, layer-wise": {"method": "chita-layer"},
    "CHITA, both": {"method": "chita-both"},
    "auto": {"method": "auto", "budget": "fast"},
}
SPARSITIES: tuple[float | str, ...] = (0.5, 0.6, 0.7, "2:4", "4:8")
# Increase this number when the results of pruning change, so that old cells are computed again.
VERSION = 3


@dataclass(frozen=True)
class LanguageBench(TextBench):
    """Pruned language models by their perplexity."""

    name = "language"
    version = VERSION

    models: Sequence[Open] = (smollm, stories)
    sparsities: Sequence[float | str] = SPARSITIES
    contenders: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: CONTENDERS)

    def report(self, records: Sequence[Record]) -> Report:
        rows = language_rows(records)
        return Report(
            title="Language models: perplexity after pruning",
            rows=rows,
            text=language_text(rows),
            draw=lambda figure: draw_language(figure, rows),
        )
