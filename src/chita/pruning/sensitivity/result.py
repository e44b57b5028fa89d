"""SensitivityResult: the loss against the sparsity of each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from chita.pruning.result_rows import json_safe
from chita.report.html_table import as_html
from chita.report.tables import Table, as_text, compact_table

BROKEN = 1e30  # replaces a loss that is not finite: larger than any other, and can be added


@dataclass(frozen=True)
class LayerScore:
    """The mean loss of a network, and its accuracy in percent if it is a classifier."""

    loss: float
    accuracy: float | None


@dataclass(frozen=True)
class LayerCurve:
    """The network with one layer pruned and all others dense.

    Attributes:
        name: the name of the parameter.
        shape: the shape of the parameter.
        weights: the number of its weights.
        scores: the score at each sparsity of the ladder.
    """

    name: str
    shape: tuple[int, ...]
    weights: int
    scores: tuple[LayerScore, ...]


@dataclass(frozen=True)
class SensitivityResult:
    """The outcome of `chita.sensitivity`.

    Attributes:
        sparsities: the ladder, in increasing order.
        dense: the score of the dense network.
        layers: a curve for each prunable parameter, in the order of the network.
        samples: the number of samples that the scores are means over.
        seconds: the time of the measurement.
    """

    sparsities: tuple[float, ...]
    dense: LayerScore
    layers: tuple[LayerCurve, ...]
    samples: int
    seconds: float

    def rises(self, layer: LayerCurve) -> list[float]:
        """Return the increase of the loss at each sparsity of the ladder.

        The increases are made monotone: a decrease at a higher sparsity is sampling noise.
        """
        losses = (s.loss if math.isfinite(s.loss) else BROKEN for s in layer.scores)
        return list(accumulate((max(loss - self.dense.loss, 0.0) for loss in losses), max))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each layer and sparsity, ready for JSON."""
        rows = [
            {
                "layer": layer.name,
                "weights": layer.weights,
                "sparsity": sparsity,
                "loss": score.loss,
                "accuracy": score.accuracy,
            }
            for layer in self.layers
            for sparsity, score in zip(self.sparsities, layer.scores, strict=True)
        ]
        return list(json_safe(rows))

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON; a loss that is not finite is None."""
        return {
            "dense_loss": self.dense.loss,
            "dense_accuracy": self.dense.accuracy,
            "samples": self.samples,
            "seconds": self.seconds,
            "rows": self.rows(),
        }

    def __str__(self) -> str:
        return as_text(sensitivity_table(self))

    def _repr_html_(self) -> str:
        return as_html(sensitivity_table(self))


def sensitivity_table(result: SensitivityResult) -> Table:
    """Return a table of the loss with each layer at each sparsity."""
    dense = result.dense
    accuracy = "" if dense.accuracy is None else f", accuracy {dense.accuracy:.2f} %"
    title = f"loss on {result.samples:,} samples with one layer pruned"
    table = compact_table(f"{title} (dense {dense.loss:.3g}{accuracy})")
    table.add_column("layer")
    table.add_column("weights", justify="right")
    for sparsity in result.sparsities:
        table.add_column(f"{sparsity:.3g}", justify="right")
    for layer in result.layers:
        losses = (f"{score.loss:.3g}" for score in layer.scores)
        table.add_row(layer.name, f"{layer.weights:,}", *losses)
    return table
