"""Random problems of several blocks side by side, and each of them alone."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.blocks.batched_problem import BatchedPoint, BatchedProblem
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.problem import Iterate, Problem


class Batch:
    """Blocks of the given sizes that keep as many weights as given, padded to the largest."""

    def __init__(
        self,
        seed: int,
        *,
        sizes: list[int],
        kept: list[int],
        n: int = 12,
        lam: float = 0.05,
        alpha: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (len(sizes), max(sizes))
        inside = torch.arange(shape[1]) < torch.tensor(sizes)[:, None]
        columns = torch.randn(*shape, n, generator=generator, dtype=torch.float64).to(dtype)
        w0 = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        self.sizes, self.mu = sizes, n * lam
        self.columns, self.w0 = columns * inside[:, :, None], w0 * inside
        self.offset = w0.new_full((n,), alpha)
        order = self.w0.abs().argsort(1, descending=True).argsort(1)
        self.kept = order < torch.tensor(kept)[:, None]

    def problem(self) -> BatchedProblem:
        return BatchedProblem(self.columns, self.w0, kept=self.kept, mu=self.mu, offset=self.offset)

    def alone(self) -> list[tuple[Problem, Iterate]]:
        """Each block's problem and its P_k(w0)."""
        problems = [
            Problem(HeldMatrix(columns[:size]), w0[:size], self.mu, self.offset)
            for columns, w0, size in zip(self.columns, self.w0, self.sizes, strict=True)
        ]
        counts = self.kept.sum(1).tolist()
        return [(problem, problem.start(k)) for problem, k in zip(problems, counts, strict=True)]


def check_equal(problem: BatchedProblem, points: BatchedPoint, alone: list[Iterate]) -> None:
    """The points are those found alone: support, weights, residual and objective."""
    w, inside = problem.spread(points.support, points.values), problem.inside(points)
    for row, point in enumerate(alone):
        size = len(point.w)
        assert torch.equal(inside[row].nonzero()[:, 0], point.support)
        close(w[row, :size], point.w)
        close(points.rho[row], point.rho)
        close(points.objective[row], torch.tensor(point.objective, dtype=torch.float64))
        assert not w[row, size:].any()


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)
