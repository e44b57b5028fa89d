"""A in memory, on a CPU or a GPU: one (p, n) tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.matrix.gradient_matrix import (
    CHUNK,
    GradientMatrix,
    largest_magnitude,
    sum_in_bags,
)
from chita.solver.matrix.half import HalfTarget
from chita.solver.matrix.target import Demand, Place, Target
from chita.solver.ranks import ALONE, Ranks

BAG = 1024  # columns that one core sums in `combine`: many bags keep every core busy
BATCH = 8  # pieces into which a pass over A is divided among the cores


class HeldMatrix(GradientMatrix):
    """The n x p matrix A, held as a tensor.

    Args:
        stored: (p, n) float32 or float64 tensor on any device; row j is column j of A. It may be a
            transposed view of an n x p matrix, which needs no copy but gathers more slowly.
        ranks: the ranks that share the columns.
    """

    def __init__(self, stored: Tensor, ranks: Ranks = ALONE) -> None:
        if stored.ndim != 2 or stored.dtype not in (torch.float32, torch.float64):
            raise ChitaError(
                "A must be a float32 or float64 matrix, got shape "
                f"{tuple(stored.shape)} of {stored.dtype}"
            )
        p, n = stored.shape
        super().__init__(n, p, stored.dtype, stored.device, ranks)
        self.stored = stored

    @property
    def gathers_fast(self) -> bool:
        """Whether the entries of a column are adjacent in memory."""
        return self.stored.is_contiguous()

    def read(self, start: int, stop: int) -> Tensor:
        return self.stored[start:stop]

    def _largest_entry_here(self) -> Tensor:
        return largest_magnitude(self.stored if self.gathers_fast else self.stored.t())

    def adjoint(self, r: Tensor) -> Tensor:
        batch, rest = self._shared_out()
        product = torch.bmm(r.expand(BATCH, 1, self.n), batch.mT).flatten()
        return torch.cat([product, rest @ r])

    def _combine(self, index: Tensor, values: Tensor) -> Tensor:
        if len(index) == 0 or self.n == 0:
            return self.stored.new_zeros(self.n)
        # The entries of a column of a transposed view are far apart: unless the columns are few, a
        # pass over all of A in memory order is faster.
        if len(index) == self.p or (not self.gathers_fast and len(index) > self.p // 40):
            return self._all_columns(values.new_zeros(self.p).index_copy_(0, index, values))
        if not self.gathers_fast:
            return self.stored.index_select(0, index).t() @ values
        starts = torch.arange(0, len(index), BAG, device=index.device)
        return sum_in_bags(self.stored, index, values, starts).sum(0)

    def _all_columns(self, d: Tensor) -> Tensor:
        batch, rest = self._shared_out()
        shared = self.p - len(rest)
        product = torch.bmm(d[:shared].view(BATCH, 1, batch.shape[1]), batch)
        return product.sum((0, 1)) + rest.t() @ d[shared:]

    def _shared_out(self) -> tuple[Tensor, Tensor]:
        """Return the columns as (BATCH, p // BATCH, n), and the remaining ones.

        BLAS multiplies one matrix by a vector on one core, but a batch of matrices on all cores.
        """
        each = self.p // BATCH
        return self.stored[: BATCH * each].view(BATCH, each, self.n), self.stored[BATCH * each :]

    def columns(self, index: Tensor) -> HeldMatrix:
        return HeldMatrix(self.stored.index_select(0, index), self.ranks)

    def widen(self, part: GradientMatrix, index: Tensor, wider: Tensor) -> HeldMatrix:
        known = torch.searchsorted(wider, index)
        missing = torch.ones_like(wider, dtype=torch.bool).index_fill_(0, known, False)
        new = missing.nonzero().squeeze(1)
        stored = self.stored.new_empty(len(wider), self.n)
        stored.index_copy_(0, known, part.whole())
        stored.index_copy_(0, new, self.stored.index_select(0, wider[new]))
        return HeldMatrix(stored, self.ranks)

    def chunks(self, index: Tensor) -> Iterator[Tensor]:
        if len(index) == self.p:
            yield from torch.split(self.stored, CHUNK)
        else:
            for part in torch.split(index, CHUNK):
                yield self.stored.index_select(0, part)


class HeldTarget(Target):
    """A target that stores rows directly in the matrix.

    Args:
        demand: the size of A.
        first: the first column to hold.
        last: the column after the last; by default all columns are held.
    """

    def __init__(self, demand: Demand, first: int = 0, last: int | None = None) -> None:
        super().__init__(first, demand.columns if last is None else last)
        self.most_rows = demand.rows
        self.stored = torch.empty(
            self.last - first, demand.rows, dtype=demand.dtype, device=demand.device
        )
        self._done = self._begun = 0

    def begin(self, rows: int) -> Place:
        self._begun = self._done + rows
        return Place(self.stored[:, self._done : self._begun], self.first)

    def end(self) -> None:
        self._done = self._begun

    def matrix(self, again: Callable[[Target], None]) -> GradientMatrix:
        return HeldMatrix(self.stored)


def hold(dtype: torch.dtype | None, demand: Demand) -> Target:
    """Return a target that holds A in memory, in half precision if `dtype` is given."""
    return HeldTarget(demand) if dtype is None else HalfTarget(demand, dtype)
