"""What the surgeon asks of an inverse (A^T A + mu I)^-1: its diagonal, and products with vectors.

The inverse is block-diagonal: A^T A outside the blocks counts as zero. A way to invert handles one
batch of blocks; `BlockDiagonal` puts the batches together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.algorithm import Layout
from chita.solver.blocks.batch import BlockBatch, block_batches
from chita.solver.problem import Problem


class Inverse(Protocol):
    """H^-1 over a batch of b blocks of size B."""

    def diagonal(self) -> Tensor:
        """[H^-1]_ii, shape (b, B)."""
        ...  # pragma: no cover

    def product(self, v: Tensor) -> Tensor:
        """H^-1 v, (b, B) to (b, B)."""
        ...  # pragma: no cover


Invert = Callable[[Problem, BlockBatch], Inverse]


def all_blocks(layout: Layout) -> list[tuple[int, int]]:
    """The blocks of a layout; one of all p weights if it has none."""
    return layout.blocks or [(0, sum(layout.layers))]


class BlockDiagonal:
    """H^-1 over all p weights, batch after batch of blocks; without blocks, one of size p."""

    def __init__(self, problem: Problem, layout: Layout, invert: Invert) -> None:
        batches = block_batches(all_blocks(layout))
        self.parts = [(batch, invert(problem, batch)) for batch in batches]

    def diagonal(self) -> Tensor:
        """[H^-1]_ii, shape (p,)."""
        return torch.cat([batch.unstack(inverse.diagonal()) for batch, inverse in self.parts])

    def product(self, v: Tensor) -> Tensor:
        """H^-1 v, shape (p,)."""
        return torch.cat(
            [batch.unstack(inverse.product(batch.stack(v))) for batch, inverse in self.parts]
        )


def square_norms(columns: Tensor) -> Tensor:
    """|a_j|^2 for columns stored as (..., n): one pass over them."""
    norms: Tensor = torch.linalg.vector_norm(columns, dim=-1)
    return norms.square_()


def cholesky(system: Tensor, mu: float) -> Tensor:
    """The factor of system + mu I in float64, for systems (b, m, m).

    It is NaN where rounding has left none. The pruned weights are then not finite either, which
    those who asked for them report, or answer by another ridge.
    """
    damping = mu * torch.eye(system.shape[-1], dtype=torch.float64, device=system.device)
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(system.double() + damping)
    return factor.masked_fill_((failed != 0)[:, None, None], torch.nan)


def require_ridge(problem: Problem) -> None:
    """Without a ridge, the Fisher of n samples has no inverse over more than n weights."""
    least = 1 / torch.finfo(problem.w0.dtype).max
    if not problem.mu > least:
        raise ChitaError(
            "ridge must be greater than 0 for a method that inverts the Fisher matrix, got "
            f"{problem.mu / problem.matrix.n:g}; 1e-5 is the least of the paper's"
        )
