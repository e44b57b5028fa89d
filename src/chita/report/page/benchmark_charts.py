"""The charts of each benchmark; the rows of an unknown benchmark are shown only as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Row = Mapping[str, Any]

OLD_NAMES = {"any": "robustness"}  # benchmarks that were renamed; their old files are still read


@dataclass(frozen=True)
class View:
    """One way to draw rows: a chart for each panel, a curve for each kind of row in it.

    Attributes:
        title: the title of the charts.
        x, y: the columns to draw; each column in `y` is a separate curve.
        x_form, y_form: their formats (see `parts`).
        curve: the columns that distinguish the curves.
        panel: the columns that distinguish the charts.
        named: whether the values of x are names.
        log_x, log_y: whether the axes are logarithmic.
        joined: whether a line connects the points.
        where: selects the rows to draw.
    """

    title: str
    x: str
    y: tuple[str, ...]
    x_form: str = "number"
    y_form: str = "number"
    curve: tuple[str, ...] = ("method",)
    panel: tuple[str, ...] = ("network",)
    named: bool = False
    log_x: bool = False
    log_y: bool = False
    joined: bool = True
    where: Callable[[Row], bool] = lambda row: True


def _scale_view(along: str) -> View:
    return View(
        f"Seconds against {along}",
        along,
        ("solve", "blocks", "gradients"),
        x_form="count",
        y_form="seconds",
        curve=("network",),
        panel=(),
        log_x=True,
        log_y=True,
        where=lambda row: row.get("axis") == along,
    )


def _is_pattern(row: Row) -> bool:
    return isinstance(row.get("sparsity"), str)  # such as "2:4"


_ACCURACY = View(
    "Test accuracy against sparsity", "sparsity", ("accuracy",), x_form="share", y_form="percent"
)


def _with_patterns(*panel: str) -> tuple[View, View]:
    """Return a view of the sparsities, and one of the patterns."""
    patterns = replace(_ACCURACY, title="Test accuracy of patterns", named=True, joined=False)
    return (
        replace(_ACCURACY, panel=panel, where=lambda row: not _is_pattern(row)),
        replace(patterns, panel=panel, where=_is_pattern),
    )


VIEWS: dict[str, tuple[View, ...]] = {  # in the order of the page
    "demo": (_ACCURACY,),
    "table1": (replace(_ACCURACY, panel=("network", "choice")),),
    "gradual": (  # its sparsity is in percent; the dense reference would stretch the axis to 0
        replace(_ACCURACY, x_form="percent", where=lambda row: row.get("target") != 0),
    ),
    "robustness": (
        View("Held-out loss against sparsity", "sparsity", ("loss",), x_form="share", log_y=True),
        _ACCURACY,
    ),
    "language": (
        View(
            "Perplexity against sparsity",
            "sparsity",
            ("perplexity",),
            named=True,
            log_y=True,
            where=lambda row: row.get("method") != "dense",
        ),
    ),
    "sentences": (
        View("Cosine to the dense embedding", "sparsity", ("cosine",), named=True),
        View("Rank correlation of the similarities", "sparsity", ("rank_correlation",), named=True),
    ),
    "recovery": _with_patterns("network", "images"),
    "imagenet": _with_patterns("network"),
    "objective": (
        View("Objective against sparsity", "sparsity", ("objective",), x_form="share", log_y=True),
    ),
    "runtime": (
        View(
            "Seconds of a solve",
            "method",
            ("seconds",),
            y_form="seconds",
            curve=("block_size",),
            named=True,
            log_y=True,
            joined=False,
        ),
    ),
    "schedules": (
        View(
            "Test accuracy after each stage",
            "stage",
            ("accuracy",),
            x_form="count",
            y_form="percent",
            curve=("schedule", "images"),
        ),
        replace(_ACCURACY, curve=("schedule", "images")),
    ),
    "ridge": (
        View(
            "Test accuracy against IHT updates",
            "iterations",
            ("accuracy",),
            y_form="percent",
            curve=("run", "ridge"),
            named=True,
            where=lambda row: row.get("iterations") is not None,
        ),
        View(
            "Test accuracy against lambda",
            "ridge",
            ("accuracy",),
            y_form="percent",
            curve=("sparsity",),
            named=True,
            where=lambda row: row.get("iterations") is None,
        ),
    ),
    "first-order": (
        View(
            "Test accuracy against m",
            "m",
            ("accuracy",),
            y_form="percent",
            curve=("alpha",),
            named=True,
        ),
    ),
    "stepsize": (View("g(tau)", "tau", ("objective",), curve=("seed",), panel=()),),
    "scale": tuple(map(_scale_view, ("p", "n", "k", "ranks"))),
}
