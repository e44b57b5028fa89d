"""WoodFisher (Singh & Alistarh 2020): the explicit inverse Fisher matrix, by Woodbury recursion.

Weights are ranked by w^2 / [H^-1]_ii and removed together by the summed OBS update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chita.curvature.fisher import Fisher
from chita.methods.registry import Method
from chita.methods.surgeon import Surgeon
from chita.methods.surgeon_inverse import all_blocks, cholesky, require_ridge
from chita.solver.algorithm import Layout
from chita.solver.blocks.batched_algebra import times
from chita.solver.blocks.block_batch import BlockBatch
from chita.solver.matrix.memory import ENTRY
from chita.solver.problem import Problem


@dataclass(frozen=True)
class Explicit:
    """The inverses themselves, (b, B, B)."""

    inverse: Tensor

    def diagonal(self) -> Tensor:
        return self.inverse.diagonal(dim1=1, dim2=2)

    def product(self, v: Tensor) -> Tensor:
        return times(v, self.inverse)  # the inverse is symmetric


@dataclass(frozen=True)
class Woodbury:
    """The Woodbury recursion over the rows of A.

    The inverses of all blocks are stored: the ranking is global, so that updates need all diagonals
    first, and computing the inverses twice would double the work.

    Attributes:
        at_once: rows of A in a step; 1 as published, more for products of matrices.
    """

    at_once: int = 32

    def __call__(self, problem: Problem, batch: BlockBatch) -> Explicit:
        """Return H^-1 over a batch of blocks in the precision of A: 4 n B^2 operations a block."""
        require_ridge(problem)
        columns = batch.stack(problem.matrix.whole())
        count, size, _ = columns.shape
        inverse = columns.new_zeros(count, size, size)
        inverse.diagonal(dim1=1, dim2=2).fill_(1 / problem.mu)
        for rows in torch.split(columns, self.at_once, dim=2):
            _add_rows(inverse, rows.contiguous())
        return Explicit(inverse)


def woodbury_memory(layout: Layout, n: int) -> int:
    """Return the bytes of the inverses of all blocks."""
    return ENTRY * sum((stop - start) ** 2 for start, stop in all_blocks(layout))


def _add_rows(inverse: Tensor, rows: Tensor) -> None:
    """Add the rows A_t to the inverses, (b, B, B), in place; `rows` is A_t^T, (b, B, t)."""
    x = inverse @ rows
    factor = cholesky(rows.mT @ x, 1.0).to(x.dtype)
    y = torch.linalg.solve_triangular(factor.mT, x, upper=True, left=False)
    inverse.baddbmm_(y, y.mT, alpha=-1)


WOODFISHER = Method("woodfisher", Fisher, Surgeon(Woodbury()), memory=woodbury_memory)
