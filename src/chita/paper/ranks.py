"""Spearman's rank correlation."""

from __future__ import annotations

import torch
from torch import Tensor


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Return Spearman's correlation of two vectors, (s,): that of their ranks.

    Equal values have the mean of their ranks.
    """
    ranks = torch.stack([ranks_of(one), ranks_of(other)])
    return float(torch.corrcoef(ranks)[0, 1])


def ranks_of(values: Tensor) -> Tensor:
    """Return the rank of each value in (s,), from 0, as float64; equal values share a mean."""
    _, places, counts = torch.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum(0) - 1
    ranks: Tensor = (last - (counts - 1) / 2).double()[places]
    return ranks
