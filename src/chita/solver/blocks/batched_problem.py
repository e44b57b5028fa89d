"""The problems of a batch of blocks, and a point of each.

Blocks smaller than the largest are padded with zero columns and zero weights. Their gradient is
zero, so they never join a support.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from chita.solver.blocks.batched_algebra import times
from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint
from chita.solver.matrix.gradient_matrix import sum_in_bags

BAG = 64  # columns that one core sums: many bags keep every core busy


class BatchedPoint(NamedTuple):
    """A feasible point of each of b problems.

    The supports are padded to the size K of the largest. A place is the index of a column in the
    whole batch: block i has the places i B to (i + 1) B.
    """

    support: Tensor  # (b, K), k places in any order; padding may be any place
    values: Tensor  # (b, K), the weights there; 0 for padding
    rho: Tensor  # (b, n), the residuals
    objective: Tensor  # (b,), in float64

    def take(self, rows: Tensor) -> BatchedPoint:
        """Return the points of some of the blocks."""
        return BatchedPoint(*(part[rows] for part in self))

    def widened(self, width: int) -> BatchedPoint:
        """Return the same points with supports padded to another width."""
        more = (0, width - self.support.shape[1])
        support = torch.constant_pad_nd(self.support, more)
        return self._replace(support=support, values=torch.constant_pad_nd(self.values, more))

    def put(self, rows: Tensor, points: BatchedPoint) -> None:
        """Replace the points of some of the blocks."""
        for part, given in zip(self, points, strict=True):
            part[rows] = given


class BatchedSolution(NamedTuple):
    """The solutions of b blocks, and the two residuals needed to scale them back together."""

    w: Tensor  # (b, B), the weights
    kept: Tensor  # (b, B) bool, the support
    rho: Tensor  # (b, n), the residuals, freshly computed
    still: Tensor  # (b, n), the residuals of w0 on the support
    settled: bool  # whether all blocks converged


class BatchedProblem:
    """Problem (main-problem) for each of b blocks, with all other weights held fixed.

    Args:
        columns: A of the blocks, (b, B, n).
        w0: the trained weights, (b, B).
        kept: the initial supports, (b, B) bool: each block keeps as many weights.
        mu: n lambda.
        offset: c, (n,), or for each block the residual due to all other weights, (b, n).
        constraint: the allowed supports; a batch has one block unless all are allowed.
    """

    def __init__(
        self,
        columns: Tensor,
        w0: Tensor,
        *,
        kept: Tensor,
        mu: float,
        offset: Tensor,
        constraint: Constraint = ANY_SUPPORT,
    ) -> None:
        self.columns, self.w0, self.kept = columns.contiguous(), w0.contiguous(), kept
        self.mu, self.offset = mu, offset.expand(len(w0), -1)
        self.constraint = constraint
        self.k = kept.sum(1)
        self.counts: list[int] = self.k.tolist()
        self.largest = max(self.counts, default=0)  # K
        self.square = self.w0.double().square().sum(1)

    @cached_property
    def valid(self) -> Tensor:
        """(b, K) bool, False for padding of the supports."""
        return torch.arange(self.largest, device=self.k.device) < self.k[:, None]

    @cached_property
    def _entries(self) -> Tensor:
        """The entries of a flattened (b, K) tensor that are not padding."""
        return self.valid.flatten().nonzero()[:, 0]

    @cached_property
    def flat_columns(self) -> Tensor:
        """(b B, n), by place."""
        return self.columns.flatten(0, 1)

    def places(self, within: Tensor) -> Tensor:
        """Convert places within the blocks, (b, c), to places in the batch."""
        size = self.w0.shape[1]
        first = torch.arange(0, self.w0.numel(), size, device=within.device)
        return within + first[:, None]

    def start(self) -> BatchedPoint:
        """Return P_k(w0): one pass over the columns."""
        return self.at(torch.where(self.kept, self.w0, 0.0), self.unmoved(self.kept))

    def at(self, w: Tensor, rho: Tensor) -> BatchedPoint:
        """Return the points w, (b, B), on the supports `kept`, given their residuals, (b, n)."""
        support = torch.zeros_like(self.valid, dtype=torch.int64)
        support[self.valid] = self.kept.flatten().nonzero()[:, 0]
        every = torch.arange(len(self.k), device=self.k.device)
        return self.point(every, support, self.at_places(w, support), rho)

    def point(self, rows: Tensor, support: Tensor, values: Tensor, rho: Tensor) -> BatchedPoint:
        """Return points of the blocks `rows`, (r,), with their objectives."""
        w = values.double()
        # |w - w0|^2 differs from |w0|^2 only on the support.
        ridge = self.square[rows] + (w * (w - 2 * self.w0.take(support))).sum(1)
        objective = rho.double().square().sum(1) / 2 + ridge * (self.mu / 2)
        return BatchedPoint(support, values, rho, objective)

    def at_places(self, entries: Tensor, support: Tensor) -> Tensor:
        """Return the entries, (b, B), at the supports, (b, K); 0 for padding."""
        return entries.take(support).masked_fill(~self.valid, 0.0)

    def spread(self, support: Tensor, values: Tensor) -> Tensor:
        """Return entries, (b, B), with these values at the supports, (b, K), and zero elsewhere."""
        places, given = support.flatten()[self._entries], values.flatten()[self._entries]
        spread = torch.zeros_like(self.w0, dtype=values.dtype)
        spread.view(-1).index_copy_(0, places, given)
        return spread

    def inside(self, x: BatchedPoint) -> Tensor:
        """Return whether a weight is in the support, (b, B) bool."""
        return self.spread(x.support, self.valid)

    def unmoved(self, kept: Tensor) -> Tensor:
        """Return the residuals, (b, n), of w0 on the supports, (b, B) bool, and zero elsewhere.

        This is one pass over the columns.
        """
        return times(torch.where(kept, 0.0, -self.w0), self.columns) + self.offset

    def gradient(self, x: BatchedPoint) -> Tensor:
        """Return grad Q, (b, B): one pass over the columns."""
        moved = self.spread(x.support, x.values).sub_(self.w0)
        return times(x.rho, self.columns.mT).add_(moved, alpha=self.mu)

    def combine(self, places: Tensor, values: Tensor, chosen: Tensor) -> Tensor:
        """Return for each row the sum of the chosen columns times their values.

        Args:
            places: (r, c).
            values: (r, c).
            chosen: (r, c) bool.

        Returns:
            (r, n): one pass over the chosen columns.
        """
        counts = chosen.sum(1)
        bags = -(-int(counts.max()) // BAG)
        if bags == 0:
            return values.new_zeros(len(places), self.offset.shape[1])
        picked = chosen.flatten().nonzero()[:, 0]
        within = torch.arange(0, bags * BAG, BAG, device=counts.device).minimum(counts[:, None])
        firsts = (counts.cumsum(0) - counts)[:, None] + within
        sums = sum_in_bags(
            self.flat_columns,
            places.flatten()[picked],
            values.flatten()[picked],
            firsts.flatten(),
        )
        return sums.view(len(places), bags, -1).sum(1)
