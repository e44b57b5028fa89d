"""M-FAC (Frantar et al. 2021): WoodFisher's ranking and update without forming the inverse."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from chita.curvature.fisher import Fisher
from chita.methods.registry import Method
from chita.methods.surgeon import Surgeon
from chita.methods.surgeon_inverse import Inverse, all_blocks, cholesky, require_ridge
from chita.solver.algorithm import Layout
from chita.solver.backsolve import gram_dtype
from chita.solver.blocks.batched_algebra import lower_gram, times
from chita.solver.blocks.block_batch import BlockBatch
from chita.solver.matrix.gradient_matrix import CHUNK
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.matrix.memory import FACTOR_ENTRY
from chita.solver.problem import Problem


class RowByRow:
    """The recursion as published: 2 i p operations for row i, and the memory of A."""

    def __init__(self, problem: Problem, batch: BlockBatch) -> None:
        require_ridge(problem)
        self.mu = problem.mu
        # At first the rows of A, (b, n, B); row i becomes v_i.
        rows = batch.stack(problem.matrix.whole()).mT.clone(memory_format=torch.contiguous_format)
        self.vectors = rows
        self.scales = rows.new_empty(rows.shape[:2])  # d_i, (b, n)
        for i in range(rows.shape[1]):
            row = rows[:, i].clone()
            shares = times(row, rows[:, :i].mT) / self.scales[:, :i]
            rows[:, i] = row / self.mu - times(shares, rows[:, :i])
            self.scales[:, i] = 1 + (row * rows[:, i]).sum(1)

    def diagonal(self) -> Tensor:
        total = torch.zeros_like(self.vectors[:, 0])
        for v, d in zip(self.vectors.unbind(1), self.scales.unbind(1), strict=True):
            total.addcmul_(v, v / d[:, None])
        return 1 / self.mu - total

    def product(self, v: Tensor) -> Tensor:
        shares = times(v, self.vectors.mT) / self.scales
        return v / self.mu - times(shares, self.vectors)


class SampleSpace:
    """The same inverse from the Cholesky factor L of A A^T + mu I, n x n for each block.

    The cost is two products of n^2 p operations.
    """

    def __init__(self, problem: Problem, batch: BlockBatch, dtype: torch.dtype) -> None:
        self.stored, self.mu, self.batch = problem.matrix.whole(), problem.mu, batch
        self.width = max(CHUNK // len(batch.blocks), 1)  # columns of each block in a chunk
        self.factor = cholesky(_gram(problem, batch, dtype), self.mu).to(dtype)

    def diagonal(self) -> Tensor:
        shares = [explained(self.factor, chunk) for chunk in self._chunks()]
        return (1 - torch.cat(shares, 1)) / self.mu

    def product(self, v: Tensor) -> Tensor:
        forward = torch.zeros_like(self.factor[:, 0])  # A v, (b, n)
        parts = torch.split(v.to(forward.dtype), self.width, dim=1)
        for chunk, part in zip(self._chunks(), parts, strict=True):
            forward += times(part, chunk)
        y = torch.cholesky_solve(forward[:, :, None], self.factor)[:, :, 0]
        back = torch.cat([times(y, chunk.mT) for chunk in self._chunks()], 1)
        return ((v - back) / self.mu).to(v.dtype)

    def _chunks(self) -> Iterator[Tensor]:
        """Yield the columns of all blocks, (b, c, n) at a time."""
        for chunk in torch.split(self.batch.stack(self.stored), self.width, dim=1):
            yield chunk.to(self.factor.dtype)


class WeightSpace:
    """The same inverse from L L^T = A^T A + mu I, B x B for each block, in float64."""

    def __init__(self, problem: Problem, batch: BlockBatch) -> None:
        columns = batch.stack(problem.matrix.whole()).double()
        self.factor = cholesky(lower_gram(columns.mT), problem.mu)

    def diagonal(self) -> Tensor:
        unit = torch.eye(self.factor.shape[1], dtype=torch.float64, device=self.factor.device)
        rows: Tensor = torch.linalg.solve_triangular(self.factor, unit, upper=False)
        return rows.square_().sum(1)

    def product(self, v: Tensor) -> Tensor:
        return torch.cholesky_solve(v[:, :, None].double(), self.factor)[:, :, 0].to(v.dtype)


def explained(factor: Tensor, columns: Tensor) -> Tensor:
    """Return |L^-1 a_j|^2 = 1 - mu [H^-1]_jj, (b, c, n) to (b, c).

    It is the share of the curvature of weight j that the samples explain.
    """
    rows: Tensor = torch.linalg.solve_triangular(factor.mT, columns, upper=True, left=False)
    return rows.square_().sum(2)


def _gram(problem: Problem, batch: BlockBatch, dtype: torch.dtype) -> Tensor:
    """Return A_b A_b^T for every block, (b, n, n); only the lower triangle is used."""
    matrix = problem.matrix
    if len(batch.blocks) > 1:
        return lower_gram(batch.stack(matrix.whole()).to(dtype))
    if batch.stop - batch.start < matrix.p:  # the whole A stores its product for the next ridge
        matrix = HeldMatrix(matrix.read(batch.start, batch.stop))
    every = torch.arange(matrix.p, device=matrix.device)
    return matrix.gram(every, dtype)[None]


def matrix_free(problem: Problem, batch: BlockBatch) -> Inverse:
    """Return M-FAC's inverse from the smaller system, in float64 where float32 is too coarse."""
    require_ridge(problem)
    matrix = problem.matrix
    if max(stop - start for start, stop in batch.blocks) < matrix.n:
        return WeightSpace(problem, batch)
    places = (torch.arange(*block, device=matrix.device) for block in batch.blocks)
    wide = any(gram_dtype(problem, block) == torch.float64 for block in places)
    return SampleSpace(problem, batch, torch.float64 if wide else matrix.dtype)


def matrix_free_memory(layout: Layout, n: int) -> int:
    """Return the bytes of the factors of all blocks."""
    return FACTOR_ENTRY * sum(min(n, stop - start) ** 2 for start, stop in all_blocks(layout))


M_FAC = Method("m-fac", Fisher, Surgeon(matrix_free), memory=matrix_free_memory)
