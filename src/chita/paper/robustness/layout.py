"""The layout of `chita bench robustness`: compare auto with the best of the other methods."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chita.paper.cells import Record
from chita.paper.method_tables import DENSE
from chita.paper.write import Row, as_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIVALS = ("magnitude", "OBD", "OBD, lambda = 0", "CHITA")
RECOVERING = ("magnitude, recovery", "LAMP, recovery", "OBD, recovery", "CHITA, recovery")
CANDIDATE = "auto"
SLACK = 1.02  # the largest accepted ratio of auto's loss to that of the best rival
BELOW = 0.3  # the largest accepted distance to the best rival with recovery, in percentage points
POINTS = 1.0  # the largest accepted loss of accuracy by rescaling, in percentage points
FIGURES = ("loss", "accuracy", "seconds", "training_steps")
ABSENT = {  # the networks that need files, and a message that names the files
    "resnet20": "ResNet20 and its copies need --checkpoints",
    "mobilenetv1-folded": "MobileNetV1 needs --checkpoints and --imagenet",
}
EXPLANATION = f"""\
The tables show loss and accuracy on test samples after pruning, averaged over the seeds. OBD and
CHITA use gradients of single samples without the first-order term, and choose lambda on held-out
samples; CHITA++ and auto use the default arguments of chita.prune. Methods with "recovery" train
between their stages as auto does, with the same samples and the same budget. Methods of your own
have default arguments, and are run without and with recovery. "met" means a loss of
at most {SLACK} times that of the best of {", ".join(RIVALS)}; an accuracy
at most {BELOW:g} points below that of the best method with recovery; and, for a rescaled copy, an
accuracy at most {POINTS:g} point below that of the original network. A rescaled copy computes the
same function: neighbouring layers are multiplied by 1000 and 1/1000."""


def robustness_rows(records: Sequence[Record]) -> list[Row]:
    """Return the mean over the seeds for each network, sparsity and method."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        place = tuple(record["key"][name] for name in ("network", "sparsity", "contender"))
        groups.setdefault((*place, record["rescaled_from"]), []).append(record)
    return [
        {
            "network": network,
            "sparsity": sparsity,
            "method": method,
            **{name: statistics.mean(record.get(name, 0) for record in found) for name in FIGURES},
            "seeds": len(found),
            "rescaled_from": original,
        }
        for (network, sparsity, method, original), found in groups.items()
    ]


def verdicts(rows: Sequence[Row]) -> list[Row]:
    """Return whether auto meets the criteria, for each network and sparsity."""
    by_place = {(row["network"], row["sparsity"], row["method"]): row for row in rows}
    lines: list[Row] = []
    for network, sparsity in _places(rows):
        rivals = [by_place[p] for m in RIVALS if (p := (network, sparsity, m)) in by_place]
        ours = by_place.get((network, sparsity, CANDIDATE))
        if ours is None or not rivals:
            continue
        best = min(rivals, key=_loss)
        original = by_place.get((ours["rescaled_from"], sparsity, CANDIDATE))
        lost = None if original is None else original["accuracy"] - ours["accuracy"]
        lines.append(
            {
                "network": network,
                "sparsity": sparsity,
                "best rival": best["method"],
                "its loss": best["loss"],
                f"loss of {CANDIDATE}": ours["loss"],
                "ratio": ours["loss"] / best["loss"],
                "loss": _met(ours["loss"] <= SLACK * best["loss"]),
                **_against_recovery(
                    ours, [by_place.get((network, sparsity, m)) for m in RECOVERING]
                ),
                "points lost by rescaling": lost,
                "rescaling": None if lost is None else _met(lost <= POINTS),
            }
        )
    return lines


def _against_recovery(ours: Row, rivals: Sequence[Row | None]) -> Row:
    """Return how far auto is below the best rival with recovery; None if none was run."""
    found = [row for row in rivals if row is not None]
    best = max(found, key=lambda row: float(row["accuracy"])) if found else None
    below = None if best is None else best["accuracy"] - ours["accuracy"]
    return {
        "best with recovery": None if best is None else best["method"],
        "points below it": below,
        "recovery": None if below is None else _met(below <= BELOW),
    }


def robustness_text(rows: Sequence[Row]) -> str:
    """Return the explanation, the verdicts and the table of all methods."""
    found = verdicts(rows)
    parts = [EXPLANATION]
    parts += [f"{what}: not run here." for name, what in ABSENT.items() if not _has(rows, name)]
    parts.append(as_markdown(found) if found else f"{CANDIDATE} was not run.")
    parts += ["## Loss, and accuracy in percent", as_markdown(_table(rows))]
    return "\n\n".join(parts)


def draw_robustness(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw the loss of each method relative to that of the best rival, network by network."""
    places = _places(rows)
    figure.set_size_inches(8, 1.5 + 0.3 * len(places))
    axes = figure.add_subplot()
    for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        if method == DENSE:
            continue
        of_method = [row for row in rows if row["method"] == method]
        axes.plot(
            [row["loss"] / _least_loss(rows, row) for row in of_method],
            [places.index((row["network"], row["sparsity"])) for row in of_method],
            "*" if method == CANDIDATE else "os"[number > 10],  # the colours repeat after ten
            color=f"C{number}",
            label=method,
        )
    axes.axvline(SLACK, color="k", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(places)), [f"{network} {share:.0%}" for network, share in places])
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel=f"loss / that of the best rival, dashed: {SLACK}")
    axes.tick_params(axis="x", which="both", labelsize="small")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")  # the ratios often lie within one decade
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize="small")


def _places(rows: Sequence[Row]) -> list[tuple[str, float]]:
    """Return the pairs of network and sparsity in the rows."""
    pruned = (row for row in rows if row["method"] != DENSE)
    return list(dict.fromkeys((row["network"], row["sparsity"]) for row in pruned))


def _least_loss(rows: Sequence[Row], place: Row) -> float:
    """Return the least loss of the rivals at a place, or of all methods if no rival was run."""
    here = [
        row
        for row in rows
        if (row["network"], row["sparsity"]) == (place["network"], place["sparsity"])
    ]
    rivals = [row for row in here if row["method"] in RIVALS]
    return min(map(_loss, rivals or here))


def _loss(row: Row) -> float:
    """Return the loss for comparisons; NaN counts as infinite."""
    return math.inf if math.isnan(row["loss"]) else float(row["loss"])


def _table(rows: Sequence[Row]) -> list[Row]:
    """Return a line for each network and sparsity, with a column for each method."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    shown = {
        (row["network"], None if row["method"] == DENSE else row["sparsity"], row["method"]): (
            f"{row['loss']:.4g}, {row['accuracy']:.2f}"
        )
        for row in rows
    }
    return [
        {
            "network": network,
            "sparsity": sparsity,
            **{
                method: shown.get((network, None if method == DENSE else sparsity, method))
                for method in methods
            },
        }
        for network, sparsity in _places(rows)
    ]


def _has(rows: Sequence[Row], name: str) -> bool:
    return any(row["network"] == name for row in rows)


def _met(holds: bool) -> str:
    return "met" if holds else "NOT MET"
