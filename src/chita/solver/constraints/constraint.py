"""Which supports are allowed: what P_k projects onto.

The paper's supports are any k weights. A constraint allows some of them only, and knows the three
things that the algorithms ask about supports: the best one for a vector, how long it stays the best
along a line, and what is left of the rule where some columns are looked at alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from chita.solver.constraints.threshold import keep, top_k
from chita.solver.ranks import ALONE, Ranks


class Constraint(ABC):
    """A rule for supports of any size k."""

    @abstractmethod
    def largest(self, x: Tensor, k: int, ranks: Ranks = ALONE) -> Tensor:
        """I_k(x): the sorted indices of the allowed support of k entries with the largest magnitude
        in x, (p,); among equals the lowest indices win."""

    @abstractmethod
    def breaking_point(self, w: Tensor, g: Tensor, support: Tensor, ranks: Ranks = ALONE) -> float:
        """tau_c: the support of P_k(w - tau g) does not change on [0, tau_c].

        Args:
            w: (p,), zero outside the support.
            g: (p,).
            support: of P_k(w - tau g) for tau -> 0+, (k,).
            ranks: that share the entries.
        """

    @abstractmethod
    def restrict(self, index: Tensor) -> Constraint:
        """The same rule over the columns at `index`, which hold a whole support; no other column
        is ever kept."""

    @abstractmethod
    def block(self, start: int, stop: int, kept: Tensor) -> Constraint:
        """A rule over the columns [start, stop) that is safe whatever the other blocks do.

        Args:
            start: the first column.
            stop: the one after the last.
            kept: (stop - start,) bool, what an allowed support has there; as many stay.
        """

    def free_in(self, blocks: Sequence[tuple[int, int]]) -> bool:
        """Whether each block [start, stop) may keep any of its weights, as many as it has now."""
        return False

    def magnitude(self, x: Tensor) -> Tensor:
        """How large each entry is, (p,), where it is ranked among others."""
        return x.abs()

    def project(self, x: Tensor, k: int, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
        """P_k(x), which is x with all but the k entries I_k(x) set to zero, and I_k(x)."""
        kept = self.largest(x, k, ranks)
        return keep(x, kept), kept


class AnySupport(Constraint):
    """The paper's: any k weights of all."""

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
    """When each |w_i - tau g_i| of a support is caught up with by tau |g_j| from outside it, (k,).

    Args:
        w: on the support, (k,).
        g: there, (k,).
        pull: |g_j|, the largest of those that may take the place of i; one for all, or (k,).
    """
    # How fast each |w_i| shrinks (a zero grows), and how fast those outside catch up with it.
    shrinking = torch.where(w != 0, g * w.sign(), -g.abs())
    closing = pull + shrinking
    return torch.where(closing > 0, w.abs() / closing, torch.inf)


def _largest(values: Tensor, least: float) -> Tensor:
    """The largest value; `least` where there are none."""
    return values.max() if len(values) else values.new_tensor(least)
