"""GradientMatrix: where the columns of A live, and the few products the solvers need.

A is n x p (n samples, p weights). It is stored with each weight's n entries together, as a (p, n)
tensor, because every solver picks columns of A by support: here that is a gather of whole rows.
Solvers touch A through the methods below and nothing else, so that the columns may come to live
elsewhere without a solver noticing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from chita.errors import ChitaError

CHUNK = 4096  # columns gathered at a time: enough for BLAS, and no A-sized copy
BAG = 1024  # columns summed in one go by `combine`: many bags keep every core busy
BATCH = 8  # pieces in which a pass over A is shared out among the cores
PANELS = 5  # a symmetric product is computed in this many panels, skipping the upper triangle


class GradientMatrix:
    """The n x p matrix A of gradients, column by column.

    Args:
        stored: (p, n) float32 or float64 tensor on any device; row j is column j of A. A transposed
            view of an n x p matrix will do: it costs no copy, and slower gathers.
    """

    def __init__(self, stored: Tensor) -> None:
        if stored.ndim != 2 or stored.dtype not in (torch.float32, torch.float64):
            raise ChitaError(
                "A must be a float32 or float64 matrix, got shape "
                f"{tuple(stored.shape)} of {stored.dtype}"
            )
        self.stored = stored
        self._last_gram: tuple[Tensor, Tensor] | None = None
        self._last_norms: tuple[Tensor, Tensor] | None = None

    @property
    def n(self) -> int:
        """Samples: rows of A."""
        return self.stored.shape[1]

    @property
    def p(self) -> int:
        """Weights: columns of A."""
        return self.stored.shape[0]

    @property
    def gathers_fast(self) -> bool:
        """Whether each column's entries lie together."""
        return self.stored.is_contiguous()

    def forward(self, d: Tensor) -> Tensor:
        """A d, shape (n,). Passes over the columns where d is not zero if these are few."""
        nonzero = d.nonzero().squeeze(1)
        if len(nonzero) < self.p // 2:
            return self.combine(nonzero, d[nonzero])
        return self._all_columns(d)

    def adjoint(self, r: Tensor) -> Tensor:
        """A^T r, shape (p,): one pass over A."""
        batch, rest = self._shared_out()
        product = torch.bmm(r.expand(BATCH, 1, self.n), batch.mT).flatten()
        return torch.cat([product, rest @ r])

    def combine(self, index: Tensor, values: Tensor) -> Tensor:
        """A_S v for the columns S = `index`, shape (n,): one pass over A_S, and no copy of it."""
        if len(index) == 0 or self.n == 0:
            return self.stored.new_zeros(self.n)
        # Single columns of a transposed view lie far apart: unless they are few, a pass over all of
        # A in its own order takes less time.
        if len(index) == self.p or (not self.gathers_fast and len(index) > self.p // 40):
            return self._all_columns(values.new_zeros(self.p).index_copy_(0, index, values))
        if not self.gathers_fast:
            return self.stored.index_select(0, index).t() @ values
        starts = torch.arange(0, len(index), BAG, device=index.device)
        bags = embedding_bag(index, self.stored, starts, mode="sum", per_sample_weights=values)
        return bags.sum(0)

    def _all_columns(self, d: Tensor) -> Tensor:
        batch, rest = self._shared_out()
        shared = self.p - len(rest)
        product = torch.bmm(d[:shared].view(BATCH, 1, batch.shape[1]), batch)
        return product.sum((0, 1)) + rest.t() @ d[shared:]

    def _shared_out(self) -> tuple[Tensor, Tensor]:
        """The columns as (BATCH, p // BATCH, n), and those left over.

        BLAS multiplies one matrix by a vector on one core, but a batch of them on all.
        """
        each = self.p // BATCH
        return self.stored[: BATCH * each].view(BATCH, each, self.n), self.stored[BATCH * each :]

    def columns(self, index: Tensor) -> GradientMatrix:
        """A_S as a matrix of its own, shape n x |S|: a copy, gathered once."""
        return GradientMatrix(self.stored.index_select(0, index))

    def widen(self, part: GradientMatrix, index: Tensor, wider: Tensor) -> GradientMatrix:
        """The columns `wider`; `part` holds those at `index`, and only the others are gathered."""
        known = torch.searchsorted(wider, index)
        missing = torch.ones_like(wider, dtype=torch.bool).index_fill_(0, known, False)
        new = missing.nonzero().squeeze(1)
        stored = self.stored.new_empty(len(wider), self.n)
        stored.index_copy_(0, known, part.stored)
        stored.index_copy_(0, new, self.stored.index_select(0, wider[new]))
        return GradientMatrix(stored)

    def span(self, start: int, stop: int) -> GradientMatrix:
        """The columns [start, stop) as a matrix of its own, without a copy."""
        return GradientMatrix(self.stored[start:stop])

    def chunks(self, index: Tensor) -> Iterator[Tensor]:
        """The columns S = `index` in pieces, each a (at most CHUNK, n) tensor to read only."""
        if len(index) == self.p:
            yield from torch.split(self.stored, CHUNK)
        else:
            for part in torch.split(index, CHUNK):
                yield self.stored.index_select(0, part)

    def gram(self, index: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A_S A_S^T, shape (n, n), accumulated in `dtype` (that of A by default).

        The last product is remembered: a search over lambda solves on one support again and again.
        """
        if self._last_gram is not None:
            last, product = self._last_gram
            if product.dtype == (dtype or self.stored.dtype) and torch.equal(last, index):
                return product
        total = self.stored.new_zeros(self.n, self.n, dtype=dtype)
        panel = -(-self.n // PANELS)
        for chunk in self.chunks(index):
            columns = chunk.to(total.dtype)
            for start in range(0, self.n, panel):
                stop = min(start + panel, self.n)
                total[start:stop, :stop].addmm_(columns[:, start:stop].t(), columns[:, :stop])
        product = total.tril() + total.tril(-1).t()
        self._last_gram = (index, product)
        return product

    def row_square_norms(self, index: Tensor) -> Tensor:
        """The diagonal of A_S A_S^T, shape (n,): one pass over A_S. Remembered as `gram` is."""
        if self._last_norms is not None and torch.equal(self._last_norms[0], index):
            return self._last_norms[1]
        total = self.stored.new_zeros(self.n)
        for chunk in self.chunks(index):
            total += chunk.square().sum(0)
        self._last_norms = (index, total)
        return total
