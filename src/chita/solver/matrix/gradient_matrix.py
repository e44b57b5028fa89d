"""GradientMatrix: the products with A that the solvers need, independent of its storage.

A is n x p (n samples, p weights). It is read as (p, n) tensors, with each weight's n entries
together, because every solver gathers columns of A by support. Solvers use A only through the
methods below, so its columns may be in memory, in a file, on other ranks, or recomputed whenever
they are read (the other modules of this package).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from chita.solver.ranks import ALONE, Ranks

CHUNK = 4096  # columns in a piece: enough for BLAS, without a copy of the size of A
# The range of largest entries for which no product underflows or overflows in float32.
ORDINARY = 2.0**-28, 2.0**28
PANELS = 5  # panels of a symmetric product, which skip most of the upper triangle


def add_lower_gram(total: Tensor, x: Tensor) -> None:
    """Add the lower triangle of x^T x, (..., i, j) to (..., j, j), to `total`.

    The product is computed in panels, which skip most of the upper triangle; the entries there are
    undefined.
    """
    size = x.shape[-1]
    panel = max(1, -(-size // PANELS))
    for start in range(0, size, panel):
        stop = min(start + panel, size)
        left, right, place = x[..., start:stop].mT, x[..., :stop], total[..., start:stop, :stop]
        if x.ndim == 2:
            place.addmm_(left, right)  # in place, because n x n may be large
        else:
            place += left @ right


def sum_in_bags(columns: Tensor, index: Tensor, values: Tensor, starts: Tensor) -> Tensor:
    """Sum chosen columns times values in each of several bags, and return the sums, (bags, n).

    Args:
        columns: (p, n); row j is column j of A.
        index: (c,), the chosen columns, one bag after the other.
        values: (c,), their factors.
        starts: (bags,), where in `index` each bag starts.
    """
    # The function that torch.nn.functional.embedding_bag calls in the mode "sum" (0).
    sums: Tensor = torch.embedding_bag(columns, index, starts, False, 0, False, values)[0]
    return sums


def largest_magnitude(x: Tensor) -> Tensor:
    """Return max |x|, a scalar tensor; 0 for an empty x, NaN if an entry is NaN."""
    if not x.numel():
        return x.new_zeros(())
    low, high = torch.aminmax(x)
    return torch.maximum(-low, high)


class GradientMatrix(ABC):
    """The n x p matrix A of gradients, column by column.

    If several ranks share the columns, then p, indices and vectors over the columns refer to this
    rank, and products that sum over columns sum over all ranks.

    Args:
        n: the number of samples, the rows of A.
        p: the number of weights, the columns of A of this rank.
        dtype: the type in which products are computed, float32 or float64.
        device: the device on which products are computed.
        ranks: the ranks that share the columns.
    """

    def __init__(
        self, n: int, p: int, dtype: torch.dtype, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        self.n, self.p, self.dtype, self.device, self.ranks = n, p, dtype, device, ranks
        self._last_gram: tuple[Tensor, Tensor] | None = None
        self._last_norms: tuple[Tensor, Tensor] | None = None
        self._largest_entry: float | None = None

    @abstractmethod
    def read(self, start: int, stop: int) -> Tensor:
        """Return the columns [start, stop) as a (stop - start, n) tensor.

        The tensor is read-only and valid until the next read, which may overwrite it.
        """

    @abstractmethod
    def columns(self, index: Tensor) -> GradientMatrix:
        """Return a copy of A_S for the columns S = `index`, sorted, as a matrix."""

    @property
    def gathers_fast(self) -> bool:
        """Whether reading scattered columns costs little more than reading adjacent ones."""
        return False

    @property
    def piece(self) -> int:
        """The number of columns to read at a time in a pass over all columns."""
        return CHUNK

    def whole(self) -> Tensor:
        """Return all columns of this rank, (p, n)."""
        return self.read(0, self.p)

    def largest_entry(self) -> float:
        """Return max |a_ij| over the columns of all ranks: one pass over A, whose result is cached.

        A slow storage stops reading at the first piece whose maximum is ordinary.
        """
        if self._largest_entry is None:
            self._largest_entry = float(self.ranks.max(self._largest_entry_here()))
        return self._largest_entry

    def _largest_entry_here(self) -> Tensor:
        """Return max |a_ij| over the columns of this rank; 0 without columns, NaN if any is NaN."""
        largest = torch.zeros((), dtype=self.dtype, device=self.device)
        for start in range(0, self.p, self.piece):
            piece = self.read(start, min(start + self.piece, self.p))
            largest = torch.maximum(largest, largest_magnitude(piece))
            if ORDINARY[0] <= float(largest) <= ORDINARY[1]:
                break
        return largest

    def forward(self, d: Tensor) -> Tensor:
        """Return A d, shape (n,); reads only the columns where d is not zero if these are few."""
        nonzero = d.nonzero().squeeze(1)
        if len(nonzero) < self.p // 2:
            return self.combine(nonzero, d[nonzero])
        return self.ranks.sum(self._all_columns(d))

    def adjoint(self, r: Tensor) -> Tensor:
        """Return A^T r, shape (p,): one pass over A."""
        product = r.new_empty(self.p)
        for start in range(0, self.p, self.piece):
            stop = min(start + self.piece, self.p)
            torch.mv(self.read(start, stop), r, out=product[start:stop])
        return product

    def combine(self, index: Tensor, values: Tensor) -> Tensor:
        """Return A_S v for the columns S = `index`, sorted, shape (n,): one pass over A_S."""
        return self.ranks.sum(self._combine(index, values))

    def _combine(self, index: Tensor, values: Tensor) -> Tensor:
        """Return A_S v for the columns of this rank."""
        total = values.new_zeros(self.n)
        done = 0
        for chunk in self.chunks(index):
            total.addmv_(chunk.t(), values[done : done + len(chunk)])
            done += len(chunk)
        return total

    def _all_columns(self, d: Tensor) -> Tensor:
        """Return A d over all columns of this rank."""
        total = d.new_zeros(self.n)
        for start in range(0, self.p, self.piece):
            stop = min(start + self.piece, self.p)
            total.addmv_(self.read(start, stop).t(), d[start:stop])
        return total

    def chunks(self, index: Tensor) -> Iterator[Tensor]:
        """Yield the columns S = `index`, sorted, in read-only pieces of shape (columns, n).

        Each piece is valid until the next one.
        """
        places = range(0, self.p, self.piece)
        firsts = torch.tensor([*places, self.p], device=index.device)
        bounds = torch.searchsorted(index, firsts).tolist()
        for start, first, last in zip(places, bounds, bounds[1:], strict=False):
            stop = min(start + self.piece, self.p)
            if last - first == stop - start:
                yield self.read(start, stop)
            elif last > first:
                yield self._pick(index[first:last])

    def _pick(self, index: Tensor) -> Tensor:
        """Return the columns at `index`, sorted, all of which are in one piece."""
        start = int(index[0])
        return self.read(start, int(index[-1]) + 1).index_select(0, index - start)

    def widen(self, part: GradientMatrix, index: Tensor, wider: Tensor) -> GradientMatrix:
        """Return the columns `wider`; those at `index` may be copied from `part`."""
        return self.columns(wider)

    def gram(self, index: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return A_S A_S^T, shape (n, n), accumulated in `dtype` (that of A by default).

        The last product is cached, because a search over lambda solves on one support repeatedly.
        """
        dtype = dtype or self.dtype
        remembered = self._last_gram
        if self.ranks.all(
            remembered is not None
            and remembered[1].dtype == dtype
            and torch.equal(remembered[0], index)
        ):
            assert remembered is not None
            return remembered[1]
        total = torch.zeros(self.n, self.n, dtype=dtype, device=self.device)
        for chunk in self.chunks(index):
            add_lower_gram(total, chunk.to(dtype))
        product = self.ranks.sum(total.tril() + total.tril(-1).t())
        self._last_gram = (index, product)
        return product

    def row_square_norms(self, index: Tensor) -> Tensor:
        """Return the diagonal of A_S A_S^T, shape (n,): one pass over A_S. The last is cached."""
        remembered = self._last_norms
        if self.ranks.all(remembered is not None and torch.equal(remembered[0], index)):
            assert remembered is not None
            return remembered[1]
        total = torch.zeros(self.n, dtype=self.dtype, device=self.device)
        for chunk in self.chunks(index):
            total += chunk.square().sum(0)
        total = self.ranks.sum(total)
        self._last_norms = (index, total)
        return total
