"""The layout of `chita bench sentences`: cosines and rank correlations by method and sparsity."""

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

RECOVERY = ", recovery"  # at the end of the name of a rival that trains
AUTO = "auto"
EXPLANATION = """\
How close the embeddings of a pruned sentence encoder are to those of the dense one, on test
sentences: the mean cosine between the two embeddings of a sentence, and Spearman's correlation of
the similarities of all pairs of sentences with those of the dense encoder. Both are 1 for the dense
encoder. The standard error in brackets is that of the sentences for the cosine, and that of the
seeds for the rank correlation.

Every method prunes with the same sentences and without labels. "auto" and the methods with
"recovery" take as many training steps, in which the embeddings approach those of the dense encoder;
the other methods do not train. The highest figure without training and the highest of all are in
bold. Seconds are those of the call of chita.prune."""


def sentence_rows(records: Sequence[Record]) -> list[Row]:
    """Return the means over the seeds for each network, method and sparsity."""
    return rows_of([r for r in records if r["key"]["method"] != DENSE], _figures)


def _figures(records: Sequence[Record]) -> dict[str, Any]:
    ranks = [record["rank_correlation"] for record in records]
    return {
        "cosine": mean_of(records, "cosine"),
        "cosine_error": mean_of(records, "cosine_error"),
        "rank_correlation": statistics.mean(ranks),
        "rank_error": standard_error(ranks),
        "seconds": mean_of(records, "seconds"),
        "sentences": records[0]["sentences"],
        "seeds": len(records),
    }


def sentence_text(rows: Sequence[Row]) -> str:
    """Return the explanation, and three tables for each network."""
    parts = [EXPLANATION]
    for network, found in by_network(rows).items():
        parts.append(f"## {network}, {found[0]['sentences']:,} test sentences")
        parts += [
            "Cosine:",
            _best_in_bold(found, "cosine", "cosine_error"),
            "Rank correlation:",
            _best_in_bold(found, "rank_correlation", "rank_error"),
            "Seconds:",
            method_table(found, lambda row: f"{row['seconds']:.0f}"),
            "Seeds:",
            method_table(found, lambda row: str(row["seeds"])),
        ]
    return "\n\n".join(parts)


def _best_in_bold(rows: Sequence[Row], name: str, error: str) -> str:
    trained = [each for row in rows if (each := row["method"]) == AUTO or RECOVERY in each]
    best = best_rows(rows, trained, lambda row: float(row[name]))
    return method_table(
        rows, lambda row: with_error(row[name], row[error], digits=4, bold=id(row) in best)
    )


def draw_sentences(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw the cosine of each method, with a panel for each network; patterns are names."""
    with_errors = ({**row, "standard_error": row["cosine_error"]} for row in rows)
    draw_panels(figure, by_network(with_errors), y="cosine")
