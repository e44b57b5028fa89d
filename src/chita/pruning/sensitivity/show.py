"""Sensitivity as a figure."""

from __future__ import annotations

from pathlib import Path

from chita.pruning.sensitivity.result import SensitivityResult
from chita.report.figures import new_figure, write_figure


def draw_sensitivity(path: Path, result: SensitivityResult, *, title: str) -> None:
    """Draw the loss against the sparsity of each layer, from the first (blue) to the last (red).

    Args:
        path: the PNG file.
        result: the curves.
        title: the title of the figure.
    """
    count = len(result.layers)
    figure = new_figure(8.0, max(4.0, 0.14 * count))
    axes = figure.add_subplot()
    axes.axhline(result.dense.loss, color="0.6", linestyle="--", linewidth=1, label="dense")
    for number, layer in enumerate(result.layers):
        depth = number / max(count - 1, 1)
        axes.plot(
            [100 * sparsity for sparsity in result.sparsities],
            [score.loss for score in layer.scores],
            color=(depth, 0.2, 1 - depth),
            marker="o",
            markersize=3,
            label=layer.name,
        )
    axes.set(xlabel="sparsity of the layer (%)", ylabel="loss", title=title)
    if result.dense.loss > 0:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=7)
    write_figure(path, figure)
