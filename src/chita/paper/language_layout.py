"""The layout of `chita bench language`: perplexities by method and sparsity, time and memory."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chita.paper.average import standard_error
from chita.paper.cells import Record
from chita.paper.method_tables import (
    DENSE,
    best_rows,
    by_network,
    mean_of,
    method_table,
    rows_of,
    with_error,
)
from chita.paper.panels import draw_panels
from chita.paper.write import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPLANATION = """\
Perplexity is exp of the mean loss of a token, over sequences without overlap; lower is better.
Every method prunes with the same 128 sequences. "magnitude" prunes the same share of each layer.
"auto" prunes as "CHITA, layer-wise" does, and then trains the remaining weights against the outputs
of the dense network, with budget="fast"; the other methods do not train. The lowest perplexity
without training and the lowest of all are in bold. Seconds are those of the call of chita.prune.
Memory is the peak of the GPU, or on a CPU that of the process so far, which does not fall from one
method to the next."""
TRAINED = ("auto",)


def language_rows(records: Sequence[Record]) -> list[Row]:
    """Return the means over the seeds for each network, method and sparsity."""
    return rows_of(records, _figures)


def _figures(records: Sequence[Record]) -> dict[str, Any]:
    values = [record["perplexity"] for record in records]
    return {
        "perplexity": statistics.mean(values),
        "standard_error": standard_error(values),
        "seconds": mean_of(records, "seconds"),
        "peak_memory_bytes": mean_of(records, "peak_memory_bytes"),
        "tokens": records[0]["tokens"],
        "seeds": len(records),
    }


def language_text(rows: Sequence[Row]) -> str:
    """Return the explanation, and three tables for each network."""
    parts = [EXPLANATION]
    for network, found in by_network(rows).items():
        pruned = [row for row in found if row["method"] != DENSE]
        dense = [row["perplexity"] for row in found if row["method"] == DENSE]
        said = f", dense: {dense[0]:.2f}" if dense else ""
        parts.append(f"## {network}, {found[0]['tokens']:,} tokens{said}")
        parts += _tables(pruned) if pruned else []
    return "\n\n".join(parts)


def _tables(rows: Sequence[Row]) -> list[str]:
    """Return the perplexities, the seconds and the memory of all methods of a network."""
    best = best_rows(rows, TRAINED, lambda row: -float(row["perplexity"]))

    def perplexity(row: Row) -> str:
        return with_error(row["perplexity"], row["standard_error"], digits=2, bold=id(row) in best)

    return [
        "Perplexity:",
        method_table(rows, perplexity),
        "Seconds:",
        method_table(rows, lambda row: f"{row['seconds']:.1f}"),
        "Peak memory in GB:",
        method_table(rows, lambda row: f"{row['peak_memory_bytes'] / 1e9:.1f}"),
    ]


def draw_language(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw the perplexity of each method, with a panel for each network; patterns are names."""
    panels = by_network(row for row in rows if row["method"] != DENSE)
    for axes in draw_panels(figure, panels, y="perplexity"):
        axes.set(yscale="log")
