"""GradientMatrix: the few products with A that the solvers need, wherever its columns live.

A is n x p (n samples, p weights). It is read with each weight's n entries together, as (p, n)
tensors, because every solver picks columns of A by support. Solvers touch A through the methods
below and nothing else, so that the columns may live in memory, in a file, on other ranks, or be
computed anew whenever they are read (`storage/`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from chita.solver.ranks import ALONE, Ranks

CHUNK = 4096  # columns in a piece: enough for BLAS, and no A-sized copy
# Largest entries for which no product of the solvers comes near to under- or overflow in float32.
ORDINARY = 2.0**-28, 2.0**28
PANELS = 5  # a symmetric product is computed in this many panels, skipping the upper triangle


def add_lower_gram(total: Tensor, x: Tensor) -> None:
    """Add the lower triangle of x^T x, (..., i, j) to (..., j, j), to `total`.

    In panels, which skip most of the upper triangle; what they leave there means nothing.
    """
    size = x.shape[-1]
    panel = max(1, -(-size // PANELS))
    for start in range(0, size, panel):
        stop = min(start + panel, size)
        left, right, place = x[..., start:stop].mT, x[..., :stop], total[..., start:stop, :stop]
        if x.ndim == 2:
            place.addmm_(left, right)  # n x n may be large: without a second panel in memory
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
    # What torch.nn.functional.embedding_bag calls in the mode "sum" (0).
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

    Where several ranks share the columns, p, indices and vectors over the columns are those of this
    rank, and products that sum over columns do so over all ranks.

    Args:
        n: samples, the rows of A.
        p: weights, the columns of A that this rank has.
        dtype: that products are computed in, float32 or float64.
        device: where products are computed.
        ranks: those who share the columns.
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
        """The columns [start, stop) as a (stop - start, n) tensor, to read only, and to be done
        with before the next read, which may put others in their place."""

    @abstractmethod
    def columns(self, index: Tensor) -> GradientMatrix:
        """A_S for the columns S = `index`, sorted, as a matrix of its own: a copy."""

    @property
    def gathers_fast(self) -> bool:
        """Whether the columns of a support are read at little more cost than as many in a row."""
        return False

    @property
    def piece(self) -> int:
        """The columns to read at a time in a pass over all."""
        return CHUNK

    def whole(self) -> Tensor:
        """All columns of this rank, (p, n)."""
        return self.read(0, self.p)

    def largest_entry(self) -> float:
        """Return max |a_ij| over the columns of all ranks: one pass over A. Remembered.

        A storage that is slow to read stops at the first piece whose maximum is ordinary.
        """
        if self._largest_entry is None:
            self._largest_entry = float(self.ranks.max(self._largest_entry_here()))
        return self._largest_entry

    def _largest_entry_here(self) -> Tensor:
        """Return max |a_ij| over the columns of this rank; 0 without columns, NaN if one is."""
        largest = torch.zeros((), dtype=self.dtype, device=self.device)
        for start in range(0, self.p, self.piece):
            piece = self.read(start, min(start + self.piece, self.p))
            largest = torch.maximum(largest, largest_magnitude(piece))
            if ORDINARY[0] <= float(largest) <= ORDINARY[1]:
                break
        return largest

    def forward(self, d: Tensor) -> Tensor:
        """A d, shape (n,). Passes over the columns where d is not zero if these are few."""
        nonzero = d.nonzero().squeeze(1)
        if len(nonzero) < self.p // 2:
            return self.combine(nonzero, d[nonzero])
        return self.ranks.sum(self._all_columns(d))

    def adjoint(self, r: Tensor) -> Tensor:
        """A^T r, shape (p,): one pass over A."""
        product = r.new_empty(self.p)
        for start in range(0, self.p, self.piece):
            stop = min(start + self.piece, self.p)
            torch.mv(self.read(start, stop), r, out=product[start:stop])
        return product

    def combine(self, index: Tensor, values: Tensor) -> Tensor:
        """A_S v for the columns S = `index`, sorted, shape (n,): one pass over A_S."""
        return self.ranks.sum(self._combine(index, values))

    def _combine(self, index: Tensor, values: Tensor) -> Tensor:
        """A_S v for the columns of this rank."""
        total = values.new_zeros(self.n)
        done = 0
        for chunk in self.chunks(index):
            total.addmv_(chunk.t(), values[done : done + len(chunk)])
            done += len(chunk)
        return total

    def _all_columns(self, d: Tensor) -> Tensor:
        """A d for the columns of this rank, none left out."""
        total = d.new_zeros(self.n)
        for start in range(0, self.p, self.piece):
            stop = min(start + self.piece, self.p)
            total.addmv_(self.read(start, stop).t(), d[start:stop])
        return total

    def chunks(self, index: Tensor) -> Iterator[Tensor]:
        """The columns S = `index`, sorted, in order and in pieces, each a (columns, n) tensor to
        read only, and before the next."""
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
        """The columns at `index`, sorted, some of those of one piece."""
        start = int(index[0])
        return self.read(start, int(index[-1]) + 1).index_select(0, index - start)

    def widen(self, part: GradientMatrix, index: Tensor, wider: Tensor) -> GradientMatrix:
        """The columns `wider`; `part` holds those at `index`, which need not be gathered again."""
        return self.columns(wider)

    def gram(self, index: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A_S A_S^T, shape (n, n), accumulated in `dtype` (that of A by default).

        The last product is remembered: a search over lambda solves on one support again and again.
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
        """The diagonal of A_S A_S^T, shape (n,): one pass over A_S. Remembered as `gram` is."""
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
