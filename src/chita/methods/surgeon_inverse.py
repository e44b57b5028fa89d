"""The inverse (A^T A + mu I)^-1 as the surgeon uses it: its diagonal and products with vectors.

The inverse is block-diagonal: entries of A^T A outside the blocks are taken as zero. An `Invert`
handles one batch of blocks; `BlockDiagonal` combines the batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.algorithm import Layout
from chita.solver.blocks.block_batch import BlockBatch, block_batches
from chita.solver.problem import Problem


class Inverse(Protocol):
    """H^-1 over a batch of b blocks of size B."""

    def diagonal(self) -> Tensor:
        """Return [H^-1]_ii, (b, B)."""
        ...  # pragma: no cover

    def product(self, v: Tensor) -> Tensor:
        """Return H^-1 v, (b, B) to (b, B)."""
        ...  # pragma: no cover


Invert = Callable[[Problem, BlockBatch], Inverse]


def all_blocks(layout: Layout) -> list[tuple[int, int]]:
    """Return the blocks of a layout; one block of all p weights if it has none."""
    return layout.blocks or [(0, sum(layout.layers))]


class BlockDiagonal:
    """H^-1 over all p weights, in batches of blocks; without blocks, one block of size p."""

    def __init__(self, problem: Problem, layout: Layout, invert: Invert) -> None:
        batches = block_batches(all_blocks(layout))
        self.parts = [(batch, invert(problem, batch)) for batch in batches]

    def diagonal(self) -> Tensor:
        """Return [H^-1]_ii, (p,)."""
        return torch.cat([batch.unstack(inverse.diagonal()) for batch, inverse in self.parts])

    def product(self, v: Tensor) -> Tensor:
        """Return H^-1 v, (p,)."""
        return torch.cat(
            [batch.unstack(inverse.product(batch.stack(v))) for batch, inverse in self.parts]
        )


def square_norms(columns: Tensor) -> Tensor:
    """Return |a_j|^2 for columns stored as (..., n), in one pass."""
    norms: Tensor = torch.linalg.vector_norm(columns, dim=-1)
    return norms.square_()


def cholesky(system: Tensor, mu: float) -> Tensor:
    """Return the Cholesky factor of system + mu I in float64, for systems (b, m, m).

    The factor is NaN if the system is not positive definite because of rounding. The pruned weights
    are then not finite; the caller reports that or tries another ridge.
    """
    damping = mu * torch.eye(system.shape[-1], dtype=torch.float64, device=system.device)
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(system.double() + damping)
    return factor.masked_fill_((failed != 0)[:, None, None], torch.nan)


def require_ridge(problem: Problem) -> None:
    """Raise if there is no ridge: the Fisher matrix of n samples has rank n at most."""
    least = 1 / torch.finfo(problem.w0.dtype).max
    if not problem.mu > least:
        raise ChitaError(
            "ridge must be greater than 0 for a method that inverts the Fisher matrix, got "
            f"{problem.mu / problem.matrix.n:g}; the smallest of the paper is 1e-5"
        )
