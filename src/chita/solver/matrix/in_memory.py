"""A in memory, on a CPU or a GPU, and the targets that receive the rows of any A.

The rows come in order, in chunks of a few. For each chunk, `Target.begin` returns the memory to
write to and `Target.end` completes it; `Target.matrix` returns the matrix when all rows are
written. A matrix in memory is one (p, n) tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.matrix.gradient_matrix import (
    CHUNK,
    GradientMatrix,
    largest_magnitude,
    sum_in_bags,
)
from chita.solver.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Demand:
    """The size of A, and the measured cost of its first row.

    Attributes:
        rows: n.
        columns: p.
        dtype: the type of the gradients, float32 or float64.
        device: the device that computes them.
        chunk: the rows that are computed at a time, if the target accepts as many.
        row_bytes: the memory of autograd for one row.
        row_seconds: the time to compute one row.
        sample_bytes: the bytes of the inputs and targets of one row.
    """

    rows: int
    columns: int
    dtype: torch.dtype
    device: torch.device
    chunk: int = 1
    row_bytes: int = 0
    row_seconds: float = 0.0
    sample_bytes: int = 0

    @property
    def column_bytes(self) -> int:
        """The bytes of one column of A."""
        return self.rows * self.dtype.itemsize

    @property
    def vector_bytes(self) -> int:
        """The bytes of a vector over all columns, such as a row of A."""
        return self.columns * self.dtype.itemsize

    @property
    def matrix_bytes(self) -> int:
        """The bytes of A."""
        return self.columns * self.column_bytes


class Place:
    """The memory of R rows of A, or of adjacent columns of these rows.

    Args:
        columns: (c, R), the memory to write to.
        first: the column of A that `columns` starts with.
    """

    def __init__(self, columns: Tensor, first: int = 0) -> None:
        self.columns, self.first, self.last = columns, first, first + len(columns)
        self._sums = columns.new_zeros(columns.shape[1])

    def clip(self, start: int, stop: int) -> tuple[slice, slice]:
        """Return the slices of this place and of the columns [start, stop) of A that overlap."""
        low, high = max(start, self.first), min(stop, self.last)
        high = max(low, high)
        return slice(low - self.first, high - self.first), slice(low - start, high - start)

    def put(self, start: int, columns: Tensor) -> None:
        """Write the columns of A from `start` on, (entries, R); columns outside are skipped."""
        there, here = self.clip(start, start + len(columns))
        self.columns[there].copy_(columns[here])
        self._sums += columns[here].sum(0)

    def add(self, start: int, columns: Tensor) -> None:
        """Add columns to those that were put there."""
        there, here = self.clip(start, start + len(columns))
        self.columns[there].add_(columns[here])
        self._sums += columns[here].sum(0)

    def clear(self, start: int, stop: int) -> None:
        """Set the columns [start, stop) of A to zero."""
        self.columns[self.clip(start, stop)[0]] = 0

    @property
    def seems_finite(self) -> bool:
        """False if any column put here is not finite, which a sum preserves."""
        return bool(self._sums.isfinite().all())


class Target(ABC):
    """Receives the rows of A, or of its columns [first, last).

    Attributes:
        most_rows: the most rows in one chunk.
        several_passes: whether its matrix may need the rows again.
    """

    most_rows: int
    several_passes: bool = False

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    @abstractmethod
    def begin(self, rows: int) -> Place:
        """Return the memory for the next rows; rows that were begun but not ended are discarded."""

    @abstractmethod
    def end(self) -> None:
        """Complete the rows that were begun."""

    @abstractmethod
    def matrix(self, again: Callable[[Target], None]) -> GradientMatrix:
        """Return the matrix after all rows are written.

        Args:
            again: writes the same rows into another target.
        """


Store = Callable[[Demand], Target]


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
