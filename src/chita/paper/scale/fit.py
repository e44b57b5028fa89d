"""Fit and draw the exponents with which the cost of each part grows along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chita.paper.write import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEMORY = "peak GB"  # all other parts are in seconds
# A is n x p; the backsolve's Gram product takes n^2 k operations and its factorisation n^3. The
# cost of blocks grows with their number. Each of N ranks does 1/N of the shared work.
BOUNDS = {
    "p": {"gradients": 1, "solve": 1, "blocks": 1, "pass": 1, "gram": 1, MEMORY: 1},
    "n": {"gradients": 1, "solve": 2, "pass": 1, "gram": 2, "factorisation": 3, MEMORY: 1},
    "k": {"solve": 1, "gram": 1},
    "ranks": {"gradients": -1, "solve": -1, "pass": -1, "gram": -1, MEMORY: -1},
}


@dataclass(frozen=True)
class Fit:
    """cost = exp(level) * size^exponent, by least squares in the logarithms.

    Attributes:
        axis: the quantity that the sizes measure.
        part: the part whose cost is measured.
        sizes: the measured sizes, in increasing order.
        costs: the cost at each size, in seconds or GB.
        exponent: the fitted exponent.
        level: the fitted level.
        bound: the exponent of the number of operations or bytes.
    """

    axis: str
    part: str
    sizes: Sequence[float]
    costs: Sequence[float]
    exponent: float
    level: float
    bound: int


def fit_axis(axis: str, rows: Sequence[Row]) -> list[Fit]:
    """Return a fit for each part that was measured at two or more sizes.

    Args:
        axis: a key of BOUNDS, and a column of the rows.
        rows: the table; rows of other axes are ignored, and None is a missing measurement.
    """
    fits = []
    for part, bound in BOUNDS[axis].items():
        points = sorted(
            (row[axis], row[part]) for row in rows if row["axis"] == axis and row[part] is not None
        )
        sizes, costs = [size for size, _ in points], [cost for _, cost in points]
        if len(set(sizes)) > 1:
            exponent, level = np.polyfit(np.log(sizes), np.log(costs), 1).tolist()
            fits.append(Fit(axis, part, sizes, costs, exponent, level, bound))
    return fits


def draw_fits(figure: Figure, fits: Sequence[Fit]) -> None:
    """Draw a column of panels for each axis: seconds in the upper one, memory in the lower."""
    axes_of = list(dict.fromkeys(fit.axis for fit in fits))
    figure.set_size_inches(4.6 * max(len(axes_of), 1), 8)
    for place, axis in enumerate(axes_of, start=1):
        for row, unit in enumerate(("seconds", MEMORY)):
            drawn = [f for f in fits if f.axis == axis and (f.part == MEMORY) == (unit == MEMORY)]
            if drawn:
                panel = figure.add_subplot(2, len(axes_of), row * len(axes_of) + place)
                panel.set(xscale="log", yscale="log", xlabel=axis, ylabel=unit)
                _draw_panel(panel, drawn)


def _draw_panel(panel: Axes, fits: Sequence[Fit]) -> None:
    """Draw the points, the fitted line, and a dashed line with the bound's exponent."""
    for number, fit in enumerate(fits):
        ends = np.array([fit.sizes[0], fit.sizes[-1]])
        colour = f"C{number}"
        label = f"{fit.part}: {fit.exponent:.2f} (bound {fit.bound})"
        panel.plot(fit.sizes, fit.costs, "o", color=colour, markersize=3)
        panel.plot(ends, np.exp(fit.level) * ends**fit.exponent, color=colour, label=label)
        bound = fit.costs[-1] * (ends / ends[-1]) ** fit.bound
        panel.plot(ends, bound, "--", color=colour, linewidth=0.8)
    marks = sorted({size for fit in fits for size in fit.sizes})
    panel.set_xticks(marks, [_short(size) for size in marks], fontsize="x-small")
    panel.set_xticks([], minor=True)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="x-small")


def _short(size: float) -> str:
    """Return the size with three digits, in thousands or millions."""
    unit, name = next((u, name) for u, name in ((1e6, "M"), (1e3, "k"), (1, "")) if size >= u)
    return f"{size / unit:.3g}{name}"
