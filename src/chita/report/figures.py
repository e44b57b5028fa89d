"""Figures as PNG files, drawn with matplotlib (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from chita.errors import ChitaError


def accuracy_figure(
    path: Path,
    sparsities: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    dense: float,
    title: str,
) -> None:
    """Accuracy against sparsity, one line for each method, the dense network as a level."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ChitaError("figures need matplotlib: pip install 'chita[plots]'") from None
    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(dense, color="0.6", linestyle="--", linewidth=1, label="dense")
    for name, values in curves.items():
        axes.plot([100 * s for s in sparsities], values, marker="o", markersize=4, label=name)
    axes.set(xlabel="sparsity (%)", ylabel="test accuracy (%)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)
