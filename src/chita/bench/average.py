"""Means and standard errors over the seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from chita.bench.cells import Record


def standard_error(figures: Sequence[float]) -> float | None:
    """Of the mean; None for fewer than two figures."""
    return statistics.stdev(figures) / len(figures) ** 0.5 if len(figures) > 1 else None


def average(records: Sequence[Record], by: Sequence[str], figure: str) -> list[dict[str, Any]]:
    """A row for each value of the fields `by` of the keys: those, the mean and its error.

    Args:
        records: with the same kind of key.
        by: fields of the key, which become columns; all others are averaged over.
        figure: the name of the figure.
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    for record in records:
        group = tuple(record["key"][field] for field in by)
        groups.setdefault(group, []).append(record[figure])
    return [
        {
            **dict(zip(by, group, strict=True)),
            figure: statistics.mean(figures),
            "standard_error": standard_error(figures),
        }
        for group, figures in groups.items()
    ]
