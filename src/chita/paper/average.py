"""Means and standard errors over the seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from chita.paper.cells import Record


def standard_error(figures: Sequence[float]) -> float | None:
    """Of the mean; None for fewer than two figures."""
    return statistics.stdev(figures) / len(figures) ** 0.5 if len(figures) > 1 else None


def near_best(means: Sequence[float], errors: Sequence[float | None]) -> list[bool | None]:
    """Return which means the seeds cannot tell from the best one.

    These are at most two standard errors of the difference below the largest mean:
    best - mean <= 2 sqrt(e_best^2 + e^2).

    Args:
        means: over the seeds, one for each method.
        errors: their standard errors; None where there is one seed.

    Returns:
        True or False for each mean, None where a standard error is missing.
    """
    best = max(range(len(means)), key=lambda i: means[i])
    largest = errors[best]
    return [
        None
        if error is None or largest is None
        else means[best] - mean <= 2 * math.hypot(largest, error)
        for mean, error in zip(means, errors, strict=True)
    ]


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
