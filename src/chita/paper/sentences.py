"""Sentence encoders: how close each method keeps the embeddings to those of the dense encoder.

All methods get the same sentences, and loss="distill", which compares embeddings by their squared
distance. Some methods are also run with the training of `auto`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chita.paper.cells import Record
from chita.paper.sentence_encoders import minilm
from chita.paper.sentences_layout import (
    AUTO,
    RECOVERY,
    draw_sentences,
    sentence_rows,
    sentence_text,
)
from chita.paper.text_bench import Open, TextBench
from chita.paper.write import Report

STEPS = 60  # of training: few, so that a cell takes minutes on one CPU core
_LOSS: dict[str, Any] = {"loss": "distill"}


def contenders(steps: int) -> dict[str, dict[str, Any]]:
    """Return the arguments of chita.prune by the name in the tables.

    Args:
        steps: the training steps of `auto` and of the methods with recovery.
    """
    trained: dict[str, Any] = {"recover": True, "budget": f"{steps} steps", **_LOSS}
    return {
        "magnitude": {"method": "magnitude", **_LOSS},
        "magnitude, by layer": {"method": "magnitude-uniform", **_LOSS},
        "Wanda": {"method": "wanda", **_LOSS},
        "SparseGPT": {"method": "sparsegpt", **_LOSS},
        "ALPS": {"method": "alps", **_LOSS},
        "CHITA, layer-wise": {"method": "chita-layer", **_LOSS},
        f"magnitude{RECOVERY}": {"method": "magnitude", **trained},
        f"Wanda{RECOVERY}": {"method": "wanda", **trained},
        f"CHITA, layer-wise{RECOVERY}": {"method": "chita-layer", **trained},
        AUTO: {"method": "auto", **trained},
    }


SPARSITIES: tuple[float | str, ...] = (0.5, 0.7, "2:4")
# Increase this number when the results of pruning change, so that old cells are computed again.
VERSION = 2


@dataclass(frozen=True)
class SentenceBench(TextBench):
    """Pruned sentence encoders by the distance of their embeddings to the dense ones."""

    name = "sentences"
    version = VERSION

    models: Sequence[Open] = (minilm,)
    sparsities: Sequence[float | str] = SPARSITIES
    contenders: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: contenders(STEPS))

    def report(self, records: Sequence[Record]) -> Report:
        rows = sentence_rows(records)
        return Report(
            title="Sentence encoders: embeddings after pruning",
            rows=rows,
            text=sentence_text(rows),
            draw=lambda figure: draw_sentences(figure, rows),
        )
