"""Figures as PNG files, drawn with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chita.errors import ChitaError
from chita.files.atomic import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float = 6.4, height: float = 4.0) -> Figure:
    """Return an empty figure of this size in inches; raise an error if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ChitaError("figures need matplotlib: pip install 'chita[plots]'") from None
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def write_figure(path: Path, figure: Figure) -> None:
    """Write the figure as a PNG file, atomically."""
    write_whole(path, as_png(figure))


def as_png(figure: Figure) -> bytes:
    """Return the content of a PNG file, drawn in memory so that errors of the disk come later."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def accuracy_figure(
    path: Path,
    sparsities: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    dense: float,
    title: str,
) -> None:
    """Draw accuracy against sparsity: a line for each method, and a level for the dense network."""
    figure = new_figure()
    axes = figure.add_subplot()
    axes.axhline(dense, color="0.6", linestyle="--", linewidth=1, label="dense")
    for name, values in curves.items():
        axes.plot([100 * s for s in sparsities], values, marker="o", markersize=4, label=name)
    axes.set(xlabel="sparsity (%)", ylabel="test accuracy (%)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    write_figure(path, figure)
