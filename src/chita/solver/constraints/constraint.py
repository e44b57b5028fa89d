"""Constraints on supports: the sets that P_k projects onto, by default any k weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from chita.solver.ranks import ALONE, Ranks

DIGIT = 16  # bits that one reduction of the search over ranks settles
BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def top_k(x: Tensor, k: int, ranks: Ranks = ALONE) -> Tensor:
    """Return I_k(x): the sorted indices of the k entries of x of largest magnitude, shape (k,).

    There are exactly k; among equals the lowest indices win, on every device and in every run. If
    ranks share the entries of x, k counts the entries of all ranks, and the indices are those of
    this rank.
    """
    if k == 0:
        return torch.empty(0, dtype=torch.int64, device=x.device)
    magnitude = x.abs()
    return keep_from(magnitude, _kth_largest(magnitude, k, ranks), k, ranks).nonzero().squeeze(1)


def keep_from(magnitude: Tensor, smallest: Tensor, k: int, ranks: Ranks = ALONE) -> Tensor:
    """Return the mask of the k largest of (p,) numbers, given the k-th largest of all ranks."""
    kept = magnitude >= smallest
    surplus = ranks.total(int(kept.sum())) - k
    if surplus:
        ties = (magnitude == smallest).nonzero().squeeze(1)
        later = ranks.total(len(ties)) - ranks.before(len(ties)) - len(ties)
        dropped = min(max(surplus - later, 0), len(ties))
        kept[ties[len(ties) - dropped :]] = False
    return kept


def hard_threshold(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return P_k(x), which is x with all but the k entries I_k(x) set to zero, and I_k(x)."""
    kept = top_k(x, k)
    return keep(x, kept), kept


def keep(x: Tensor, support: Tensor) -> Tensor:
    """Return x on a support (indices) and zero elsewhere, (p,)."""
    return torch.zeros_like(x).index_copy_(0, support, x[support])


def _kth_largest(magnitude: Tensor, k: int, ranks: Ranks) -> Tensor:
    """Return the exact k-th largest of the non-negative numbers of all ranks.

    The bits of such numbers, read as integers, have the same order. The ranks find the bits of the
    k-th largest one digit at a time, each by a histogram of the numbers that match the digits
    found so far.
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


class Constraint(ABC):
    """A rule for supports of any size k."""

    @abstractmethod
    def largest(self, x: Tensor, k: int, ranks: Ranks = ALONE) -> Tensor:
        """Return I_k(x): the sorted indices of the allowed support with the largest entries of x.

        Args:
            x: (p,); among equals the lowest indices win.
            k: the size of the support.
            ranks: the ranks that share the entries.
        """

    @abstractmethod
    def breaking_point(self, w: Tensor, g: Tensor, support: Tensor, ranks: Ranks = ALONE) -> float:
        """Return tau_c: the support of P_k(w - tau g) does not change on [0, tau_c].

        Args:
            w: (p,), zero outside the support.
            g: (p,).
            support: the support of P_k(w - tau g) for tau -> 0+, (k,).
            ranks: the ranks that share the entries.
        """

    @abstractmethod
    def restrict(self, index: Tensor) -> Constraint:
        """Return the same rule over the columns at `index`; no other columns are kept."""

    @abstractmethod
    def block(self, start: int, stop: int, kept: Tensor) -> Constraint:
        """Return a rule over the columns [start, stop) that holds for every choice of other blocks.

        Args:
            start: the first column.
            stop: the column after the last.
            kept: (stop - start,) bool, the part of an allowed support in the block, which keeps as
                many.
        """

    def free_in(self, blocks: Sequence[tuple[int, int]]) -> bool:
        """Return whether each block [start, stop) may keep any weights, as many as it has now."""
        return False

    def magnitude(self, x: Tensor) -> Tensor:
        """Return the magnitude by which each entry is ranked, (p,)."""
        return x.abs()

    def project(self, x: Tensor, k: int, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
        """Return P_k(x), which is x with all but the k entries I_k(x) set to zero, and I_k(x)."""
        kept = self.largest(x, k, ranks)
        return keep(x, kept), kept


class AnySupport(Constraint):
    """The constraint of the paper: any k weights."""

    def largest(self, x: Tensor, k: int, ranks: Ranks = ALONE) -> Tensor:
        return top_k(x, k, ranks)

    def breaking_point(self, w: Tensor, g: Tensor, support: Tensor, ranks: Ranks = ALONE) -> float:
        pull = g.abs().index_fill_(0, support, 0.0)
        outside = ranks.max(_largest(pull, 0.0))
        meeting = meeting_times(w[support], g[support], outside)
        return -float(ranks.max(_largest(-meeting, -torch.inf)))

    def restrict(self, index: Tensor) -> AnySupport:
        return self

    def block(self, start: int, stop: int, kept: Tensor) -> AnySupport:
        return self

    def free_in(self, blocks: Sequence[tuple[int, int]]) -> bool:
        return True


ANY_SUPPORT = AnySupport()


def meeting_times(w: Tensor, g: Tensor, pull: Tensor) -> Tensor:
    """Return the tau, (k,), at which tau |g_j| from outside a support meets each |w_i - tau g_i|.

    Args:
        w: the weights on the support, (k,).
        g: the gradient on the support, (k,).
        pull: the largest |g_j| of the weights that may replace weight i; one for all, or (k,).
    """
    # The rate at which each |w_i| shrinks (a zero grows), and at which those outside catch up.
    shrinking = torch.where(w != 0, g * w.sign(), -g.abs())
    closing = pull + shrinking
    return torch.where(closing > 0, w.abs() / closing, torch.inf)


def _largest(values: Tensor, least: float) -> Tensor:
    """Return the largest value; `least` if there are none."""
    return values.max() if len(values) else values.new_tensor(least)
