"""The layout of `chita bench recovery`: auto beside rivals with the same recovery."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chita.paper.average import near_best, standard_error
from chita.paper.cells import Record
from chita.paper.method_tables import with_error
from chita.paper.panels import draw_panels
from chita.paper.write import Row, as_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AUTO = "auto"
NO_RECOVERY = "auto, recover=False"
BELOW = 0.3  # the largest accepted distance of auto to the best rival, in percentage points
PLACE = ("network", "images", "sparsity")
EXPLANATION = """\
auto has its default options. The other methods prune by their own rule, and recover on the same
images with the same budget: the default one, or "fast" with --quick. The comparison of candidates
counts in the time of auto, but not as its training steps, so auto may train for fewer steps than
the others where the time limits them. A last training that does not help is repeated, and adds to
the steps. OBD keeps the largest w^2 (F + lambda), where F is the diagonal of the Fisher matrix; OBD
and CHITA choose lambda by the loss on held-out images. Methods of your own have default arguments.
Seconds are those of the call of chita.prune with the images in memory.

Accuracies are means over the seeds, with the standard error in brackets. Accuracies in bold are at
most two standard errors of the difference below the best method with recovery: they do not differ
significantly from it. "auto, recover=False" prunes without training and is not part of that
comparison. The gains are decreases of the held-out loss over all stages: by the solves, from the
mask alone to the solution, which is measured for auto only, and by the training."""
DIFFERENCES = f"""\
auto against the best of the other methods with recovery, by the mean. The difference of the
accuracies is taken for each seed that both have, and its standard error is in brackets. "met" means
that auto is at most {BELOW:g} points below."""

Results = dict[str, dict[int, Record]]  # the records of a place, by method and seed


def recovery_rows(records: Sequence[Record]) -> list[Row]:
    """Return the means over the seeds for each network, number of images, sparsity and method."""
    return [
        {**dict(zip(PLACE, place, strict=True)), **row}
        for place, results in _by_place(records).items()
        for row in _rows_of(results)
    ]


def _by_place(records: Sequence[Record]) -> dict[tuple[Any, ...], Results]:
    places: dict[tuple[Any, ...], Results] = {}
    for record in records:
        key = record["key"]
        place = (key["network"], record["images"], key["sparsity"])
        places.setdefault(place, {}).setdefault(key["row"], {})[key["seed"]] = record
    return places


def _rows_of(results: Results) -> list[Row]:
    """Return a row for each method at one place."""
    rows = [_row(method, list(found.values())) for method, found in results.items()]
    compared = [row for row in rows if row["method"] != NO_RECOVERY]
    if compared:
        marks = near_best(
            [row["accuracy"] for row in compared], [row["standard_error"] for row in compared]
        )
        for row, mark in zip(compared, marks, strict=True):
            row["near_best"] = mark
    return list(rows)


def _row(method: str, found: Sequence[Record]) -> dict[str, Any]:
    """Return the means over the seeds; `near_best` depends on the other methods."""
    accuracies = [record["accuracy"] for record in found]
    gains = [record["gains"] for record in found if record["gains"] is not None]
    return {
        "method": method,
        "accuracy": statistics.mean(accuracies),
        "standard_error": standard_error(accuracies),
        "near_best": None,
        "seconds": statistics.mean(record["seconds"] for record in found),
        "training_steps": statistics.mean(record["training_steps"] for record in found),
        "gain_of_solves": _mean(gains, "solve") if method == AUTO else None,
        "gain_of_training": _mean(gains, "recovery"),
        "dense": statistics.mean(record["dense"] for record in found),
        "seeds": len(found),
    }


def _mean(gains: Sequence[dict[str, float]], name: str) -> float | None:
    return statistics.mean(each[name] for each in gains) if gains else None


def differences(records: Sequence[Record]) -> list[Row]:
    """Return how auto compares with the best rival, for each network, images and sparsity."""
    lines: list[Row] = []
    for place, results in _by_place(records).items():
        best = _best_rival(results)
        if best is None:
            continue
        pairs = _pairs(results, best)
        apart = [auto["accuracy"] - rival["accuracy"] for auto, rival in pairs]
        mean = statistics.mean(apart)
        lines.append(
            {
                **dict(zip(PLACE, place, strict=True)),
                "best rival": best,
                "auto minus it": with_error(mean, standard_error(apart), digits=2),
                f"at most {BELOW:g} below": "met" if mean >= -BELOW else "NOT MET",
                "seconds of auto": statistics.mean(auto["seconds"] for auto, _ in pairs),
                "seconds of the rival": statistics.mean(rival["seconds"] for _, rival in pairs),
            }
        )
    return lines


def _pairs(results: Results, rival: str) -> list[tuple[Record, Record]]:
    """Return the records of auto and of a rival for each seed that both have."""
    ours, others = results.get(AUTO, {}), results[rival]
    return [(ours[seed], others[seed]) for seed in ours if seed in others]


def _best_rival(results: Results) -> str | None:
    """Return the rival with the highest mean accuracy among those that share a seed with auto."""
    means = {
        method: statistics.mean(record["accuracy"] for record in found.values())
        for method, found in results.items()
        if method not in (AUTO, NO_RECOVERY) and _pairs(results, method)
    }
    return max(means, key=lambda method: means[method]) if means else None


def recovery_text(rows: Sequence[Row], records: Sequence[Record]) -> str:
    """Return the explanation, the comparison, and a table for each network and its images."""
    parts = [EXPLANATION]
    if compared := differences(records):
        parts += [DIFFERENCES, as_markdown(compared)]
    for title, found in _panels(rows).items():
        dense, seeds = found[0]["dense"], max(row["seeds"] for row in found)
        count = "1 seed" if seeds == 1 else f"{seeds} seeds"
        parts.append(f"## {title}, {count} (dense: {dense:.2f})")
        parts.append(as_markdown([_line(row) for row in found]))
    return "\n\n".join(parts)


def _panels(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each network and number of images, patterns apart, by their title."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        patterns = ", patterns" if isinstance(row["sparsity"], str) else ""
        title = f"{row['network']}, {row['images']:,} images{patterns}"
        panels.setdefault(title, []).append(row)
    return panels


def _line(row: Row) -> Row:
    mean = with_error(row["accuracy"], row["standard_error"], digits=2, bold=bool(row["near_best"]))
    return {
        "sparsity": row["sparsity"],
        "method": row["method"],
        "accuracy": mean,
        "seconds": f"{row['seconds']:.1f}",
        "training steps": f"{row['training_steps']:.0f}",
        "gain of solves": row["gain_of_solves"],
        "gain of training": row["gain_of_training"],
    }


def draw_recovery(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw the accuracy of each method against the sparsity, a panel for each number of images."""
    draw_panels(figure, _panels(rows), y="accuracy")
