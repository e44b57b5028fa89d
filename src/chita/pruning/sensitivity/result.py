"""What `chita.sensitivity` gives back: the loss against the sparsity of each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from chita.files.finite import finite_or_none

BROKEN = 1e30  # stands for a loss that is not finite: it can be added, and is beyond all others


@dataclass(frozen=True)
class Score:
    """How well a network does: its mean loss, and its accuracy in percent if it is a classifier."""

    loss: float
    accuracy: float | None


@dataclass(frozen=True)
class LayerCurve:
    """The network with one layer pruned, all others dense.

    Attributes:
        name: of the parameter.
        shape: of the parameter.
        weights: how many it has.
        scores: at each sparsity of the ladder.
    """

    name: str
    shape: tuple[int, ...]
    weights: int
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class SensitivityResult:
    """The outcome of `chita.sensitivity`.

    Attributes:
        sparsities: the ladder, rising.
        dense: the network as it is.
        layers: a curve for each prunable parameter, in the order of the network.
        samples: how many the scores are means over.
        seconds: what it took.
    """

    sparsities: tuple[float, ...]
    dense: Score
    layers: tuple[LayerCurve, ...]
    samples: int
    seconds: float

    def rises(self, layer: LayerCurve) -> list[float]:
        """How far the loss rises at each sparsity of the ladder.

        What falls back at a higher sparsity is noise of the samples, and is not believed.
        """
        losses = (s.loss if math.isfinite(s.loss) else BROKEN for s in layer.scores)
        return list(accumulate((max(loss - self.dense.loss, 0.0) for loss in losses), max))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each layer and sparsity."""
        return [
            {
                "layer": layer.name,
                "weights": layer.weights,
                "sparsity": sparsity,
                "loss": finite_or_none(score.loss),
                "accuracy": score.accuracy,
            }
            for layer in self.layers
            for sparsity, score in zip(self.sparsities, layer.scores, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON; a loss that is not finite is None."""
        return {
            "dense_loss": self.dense.loss,
            "dense_accuracy": self.dense.accuracy,
            "samples": self.samples,
            "seconds": self.seconds,
            "rows": self.rows(),
        }
