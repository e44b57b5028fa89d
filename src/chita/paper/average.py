"""Means and standard errors over the seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from chita.paper.cells import Record


def standard_error(figures: Sequence[float]) -> float | None:
    """Return the standard error of the mean, or None for fewer than two figures."""
    return statistics.stdev(figures) / len(figures) ** 0.5 if len(figures) > 1 else None


def near_best(means: Sequence[float], errors: Sequence[float | None]) -> list[bool | None]:
    """Return which means do not differ significantly from the best one.

    These are the means that lie at most two standard errors of the difference below the largest
    mean: best - mean <= 2 sqrt(e_best^2 + e^2).

    Args:
        means: the mean over the seeds for each method.
        errors: the standard errors of the means; None for a mean of one seed.

    Returns:
        True or False for each mean, or None if a standard error is missing.
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
    """Group the records by fields of their keys and average a figure over each group.

    Args:
        records: the records; their keys have the same fields.
        by: the fields of the key that define the groups.
        figure: the name of the figure.

    Returns:
        A row for each group: the fields `by`, the mean and its standard error.
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
