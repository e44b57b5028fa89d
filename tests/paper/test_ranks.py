"""Spearman's rank correlation."""

from __future__ import annotations

import pytest
import torch

from chita.paper.ranks import rank_correlation, ranks_of
from tests.support.pruning import numbers


def test_only_the_order_of_the_values_counts() -> None:
    one, other = numbers(50), numbers(50, seed=1)
    assert rank_correlation(one, one.exp()) == pytest.approx(1)
    assert rank_correlation(one, -one) == pytest.approx(-1)
    assert rank_correlation(one.exp(), other) == pytest.approx(rank_correlation(one, other.sinh()))


def test_distinct_values_have_the_correlation_of_the_textbook() -> None:
    """1 - 6 sum d^2 / (s (s^2 - 1)), d the differences of the ranks."""
    one, other = numbers(40), numbers(40, seed=1)
    ranks = [sum(float(x > y) for y in one) for x in one]
    others = [sum(float(x > y) for y in other) for x in other]
    squares = sum((a - b) ** 2 for a, b in zip(ranks, others, strict=True))
    assert rank_correlation(one, other) == pytest.approx(1 - 6 * squares / (40 * (40**2 - 1)))


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    found = ranks_of(torch.tensor([3.0, 1.0, 3.0, 0.0, 3.0, 1.0]))
    assert found.tolist() == [4.0, 1.5, 4.0, 0.0, 4.0, 1.5]
