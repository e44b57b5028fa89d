"""The epochs of a training, as rows and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chita.report.figures import new_figure, write_figure


@dataclass(frozen=True)
class EpochRow:
    """One epoch.

    Attributes:
        epoch: 1, 2, ...
        pruned: whether a pruning step preceded the epoch.
        sparsity: the sparsity of the prunable weights in the forward pass, at the end.
        learning_rate: the learning rate at the first step.
        last_learning_rate: the learning rate at the last step.
        loss: the mean loss over the steps, without the penalty of a method; the divergence from
            the teacher if the recipe distills.
        accuracy: the test accuracy at the end, in percent.
        seconds: the time for pruning, training and testing.
    """

    epoch: int
    pruned: bool
    sparsity: float
    learning_rate: float
    last_learning_rate: float
    loss: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class History:
    """The epochs of a training and the resulting network.

    Attributes:
        rows: one for each epoch.
        accuracy: the test accuracy of the sparse network, in percent.
        weights: the number of prunable weights.
        nonzeros: the number of them that are left.
    """

    rows: tuple[EpochRow, ...]
    accuracy: float
    weights: int
    nonzeros: int

    @property
    def sparsity(self) -> float:
        """The sparsity of the prunable weights."""
        return 1 - self.nonzeros / self.weights

    @property
    def seconds(self) -> float:
        """The time of all epochs."""
        return sum(row.seconds for row in self.rows)

    def table(self) -> list[dict[str, Any]]:
        """Return the epochs for CSV and JSON."""
        return [asdict(row) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Return all values for JSON."""
        return {
            "accuracy": self.accuracy,
            "sparsity": self.sparsity,
            "weights": self.weights,
            "nonzeros": self.nonzeros,
            "seconds": self.seconds,
            "epochs": self.table(),
        }


def draw_history(path: Path, rows: Sequence[EpochRow], *, title: str) -> None:
    """Draw accuracy and learning rate over the epochs, with the sparsity of each pruning step."""
    figure = new_figure(6.4, 5.0)
    above, below = figure.subplots(2, sharex=True)
    ends = [row.epoch for row in rows]
    rates = [rate for row in rows for rate in (row.learning_rate, row.last_learning_rate)]
    above.plot(ends, [row.accuracy for row in rows], color="C0")
    above.set(ylabel="test accuracy (%)", title=title)
    below.plot([time for end in ends for time in (end - 1, end)], rates, color="C1")
    below.set(xlabel="epoch", ylabel="learning rate")
    below.margins(y=0.25)  # room for the labels
    for axes in (above, below):
        axes.grid(alpha=0.3)
    for row in rows:
        if row.pruned:
            point = (row.epoch - 1, row.learning_rate)
            above.axvline(point[0], color="0.7", linestyle=":", linewidth=1)
            below.plot(*point, "o", color="C1", markersize=4)
            below.annotate(
                f"{row.sparsity:.3g}",
                point,
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    write_figure(path, figure)
