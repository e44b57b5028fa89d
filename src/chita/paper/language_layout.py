"""The layout of `chita bench language`: perplexities by method and sparsity, time and memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from chita.paper.average import standard_error
from chita.paper.cells import Record
from chita.paper.panels import draw_lines
from chita.paper.write import Row, as_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DENSE = "dense"
EXPLANATION = """\
Perplexity is exp of the mean loss of a token, over sequences without overlap; lower is better.
Every method prunes with the same 128 sequences. "magnitude" prunes the same share of each layer.
"auto" and "recovery" train the remaining weights against the outputs of the dense network, and the
other methods do not train. The lowest perplexity without training and the lowest of all are in
bold. Seconds are those of the call of chita.prune. Memory is the peak of the GPU, or on a CPU that
of the process so far, which does not fall from one method to the next."""
TRAINED = ("auto", "CHITA, layer-wise, recovery")


def language_rows(records: Sequence[Record]) -> list[Row]:
    """Return the means over the seeds for each network, method and sparsity."""
    places: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        key = record["key"]
        place = (key["network"], key["sparsity"], key["method"])
        places.setdefault(place, []).append(record)
    return [
        {"network": network, "sparsity": sparsity, "method": method, **_figures(found)}
        for (network, sparsity, method), found in places.items()
    ]


def _figures(records: Sequence[Record]) -> dict[str, Any]:
    values = [record["perplexity"] for record in records]
    return {
        "perplexity": statistics.mean(values),
        "standard_error": standard_error(values),
        "seconds": _mean(records, "seconds"),
        "peak_memory_bytes": _mean(records, "peak_memory_bytes"),
        "tokens": records[0]["tokens"],
        "seeds": len(records),
    }


def _mean(records: Sequence[Record], name: str) -> float | None:
    values = [record[name] for record in records if record[name] is not None]
    return statistics.mean(values) if values else None


def language_text(rows: Sequence[Row]) -> str:
    """Return the explanation, and three tables for each network."""
    parts = [EXPLANATION]
    for network, found in _networks(rows).items():
        pruned = [row for row in found if row["method"] != DENSE]
        dense = [row["perplexity"] for row in found if row["method"] == DENSE]
        said = f", dense: {dense[0]:.2f}" if dense else ""
        parts.append(f"## {network}, {found[0]['tokens']:,} tokens{said}")
        parts += _tables(pruned) if pruned else []
    return "\n\n".join(parts)


def _tables(rows: Sequence[Row]) -> list[str]:
    """Return the perplexities, the seconds and the memory of all methods of a network."""
    best = _best(rows)
    return [
        "Perplexity:",
        _table(rows, lambda row: _shown(row, bold=id(row) in best)),
        "Seconds:",
        _table(rows, lambda row: f"{row['seconds']:.1f}"),
        "Peak memory in GB:",
        _table(rows, lambda row: f"{row['peak_memory_bytes'] / 1e9:.1f}"),
    ]


def _networks(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["network"], []).append(row)
    return found


def _best(rows: Sequence[Row]) -> set[int]:
    """Return the ids of the best rows of each sparsity: of all methods, and of those that do not
    train.
    """
    found = set()
    for sparsity in dict.fromkeys(row["sparsity"] for row in rows):
        here = [row for row in rows if row["sparsity"] == sparsity]
        for some in (here, [row for row in here if row["method"] not in TRAINED]):
            if some:
                found.add(id(min(some, key=lambda row: float(row["perplexity"]))))
    return found


def _table(rows: Sequence[Row], show: Callable[[Row], str]) -> str:
    """Return a table with a line for each method, and a column for each sparsity."""
    columns = list(dict.fromkeys(row["sparsity"] for row in rows))
    cells = {(row["method"], row["sparsity"]): show(row) for row in rows}
    methods = dict.fromkeys(row["method"] for row in rows)
    return as_markdown(
        [
            {"method": method, **{str(each): cells.get((method, each)) for each in columns}}
            for method in methods
        ]
    )


def _shown(row: Row, *, bold: bool) -> str:
    value = f"**{row['perplexity']:.2f}**" if bold else f"{row['perplexity']:.2f}"
    error = row["standard_error"]
    return value if error is None else f"{value} ({error:.2f})"


def draw_language(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw the perplexity of each method, with a panel for each network; patterns are names."""
    panels = _networks(row for row in rows if row["method"] != DENSE)
    figure.set_size_inches(5.2 * max(len(panels), 1), 4.2)
    names = list(dict.fromkeys(row["method"] for found in panels.values() for row in found))
    for place, (network, found) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        named = [{**row, "sparsity": str(row["sparsity"])} for row in found]
        draw_lines(axes, named, line="method", x="sparsity", y="perplexity", names=names)
        axes.set(title=network, yscale="log")
