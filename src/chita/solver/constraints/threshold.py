"""The hard thresholding operator P_k: keep the k entries of largest magnitude."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.ranks import ALONE, Ranks

DIGIT = 16  # bits that one reduction of the search over ranks settles
BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def top_k(x: Tensor, k: int, ranks: Ranks = ALONE) -> Tensor:
    """I_k(x): the sorted indices of the k entries of x of largest magnitude, shape (k,).

    Exactly k; among equals the lowest indices win, on every device and every run. Where ranks share
    the entries of x, k counts those of all, and the indices are those of this rank.
    """
    if k == 0:
        return torch.empty(0, dtype=torch.int64, device=x.device)
    magnitude = x.abs()
    smallest = _kth_largest(magnitude, k, ranks)
    kept = magnitude >= smallest
    surplus = ranks.total(int(kept.sum())) - k
    if surplus:
        ties = (magnitude == smallest).nonzero().squeeze(1)
        later = ranks.total(len(ties)) - ranks.before(len(ties)) - len(ties)
        dropped = min(max(surplus - later, 0), len(ties))
        kept[ties[len(ties) - dropped :]] = False
    return kept.nonzero().squeeze(1)


def hard_threshold(x: Tensor, k: int, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
    """P_k(x), which is x with all but the k entries I_k(x) set to zero, and I_k(x)."""
    kept = top_k(x, k, ranks)
    return keep(x, kept), kept


def keep(x: Tensor, support: Tensor) -> Tensor:
    """x on a support (indices), zero elsewhere, (p,)."""
    return torch.zeros_like(x).index_copy_(0, support, x[support])


def _kth_largest(magnitude: Tensor, k: int, ranks: Ranks) -> Tensor:
    """The k-th largest of non-negative numbers that the ranks share, exactly.

    Read as integers, the bits of such numbers have the same order. The ranks find those of the k-th
    largest a digit at a time, each by a histogram of the numbers that agree with it so far.
    """
    if ranks.size == 1:
        return magnitude.kthvalue(magnitude.numel() - k + 1).values
    whole = BITS[magnitude.dtype]
    bits = magnitude.view(whole)
    found, left = 0, k
    for shift in range(8 * bits.element_size() - DIGIT, -1, -DIGIT):
        digits = (bits >> shift) & (2**DIGIT - 1)
        counts = ranks.sum(torch.bincount(digits, minlength=2**DIGIT))
        at_least = counts.flip(0).cumsum(0)  # numbers whose digit is among the 1, 2, ... largest
        larger = int((at_least < left).sum())
        left -= int(at_least[larger - 1]) if larger else 0
        digit = 2**DIGIT - 1 - larger
        bits = bits[digits == digit]
        found = found << DIGIT | digit
    return torch.tensor(found, dtype=whole, device=magnitude.device).view(magnitude.dtype)
