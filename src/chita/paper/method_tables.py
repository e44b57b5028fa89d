"""Tables with a line for each method and a column for each sparsity."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chita.paper.cells import Record
from chita.paper.write import Row, as_markdown

DENSE = "dense"  # the method of the network before pruning


def rows_of(
    records: Sequence[Record], figures: Callable[[Sequence[Record]], dict[str, Any]]
) -> list[Row]:
    """Return a row for each network, method and sparsity.

    Args:
        records: the records.
        figures: returns the other columns, given the records of all seeds.
    """
    places: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        key = record["key"]
        place = (key["network"], key["sparsity"], key["method"])
        places.setdefault(place, []).append(record)
    return [
        {"network": network, "sparsity": sparsity, "method": method, **figures(found)}
        for (network, sparsity, method), found in places.items()
    ]


def mean_of(records: Sequence[Record], name: str) -> float | None:
    """Return the mean of a figure over the records that have it."""
    values = [record[name] for record in records if record[name] is not None]
    return statistics.mean(values) if values else None


def by_network(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each network."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["network"], []).append(row)
    return found


def best_rows(
    rows: Sequence[Row], trained: Sequence[str], quality: Callable[[Row], float]
) -> set[int]:
    """Return the ids of the best row of each sparsity, and of the best one without training.

    Args:
        rows: the rows of a network.
        trained: the methods that train.
        quality: returns the figure of a row to compare; higher is better.
    """
    found = set()
    for sparsity in dict.fromkeys(row["sparsity"] for row in rows):
        here = [row for row in rows if row["sparsity"] == sparsity]
        for some in (here, [row for row in here if row["method"] not in trained]):
            if some:
                found.add(id(max(some, key=quality)))
    return found


def method_table(rows: Sequence[Row], show: Callable[[Row], str]) -> str:
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


def with_error(value: float, error: float | None, *, digits: int, bold: bool = False) -> str:
    """Return a figure, in bold if it is the best, and its standard error in brackets."""
    shown = f"{value:.{digits}f}"
    shown = f"**{shown}**" if bold else shown
    return shown if error is None else f"{shown} ({error:.{digits}f})"
