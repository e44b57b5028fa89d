"""Small random problems, and the dense float64 truth about them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.problem import Iterate, Problem

Array = NDArray[np.float64]


def random_problem(
    seed: int,
    *,
    n: int = 10,
    p: int = 16,
    lam: float = 0.05,
    alpha: float = 1.0,
    dtype: torch.dtype = torch.float64,
    constraint: Constraint = ANY_SUPPORT,
) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    stored = torch.randn(p, n, generator=generator, dtype=torch.float64).to(dtype)
    w0 = torch.randn(p, generator=generator, dtype=torch.float64).to(dtype)
    return Problem.build(HeldMatrix(stored), w0, lam=lam, alpha=alpha, constraint=constraint)


def dense_objective(problem: Problem, w: Tensor) -> float:
    """Q(w) from its definition, in float64."""
    d = (w - problem.w0).double()
    rho = problem.matrix.whole().double().t() @ d + problem.offset.double()
    return float(rho @ rho / 2 + problem.mu / 2 * (d @ d))


def dense_gradient(problem: Problem, w: Tensor) -> Tensor:
    A = problem.matrix.whole().double().t()
    d = (w - problem.w0).double()
    return A.t() @ (A @ d + problem.offset.double()) + problem.mu * d


def dense_minimiser(problem: Problem, support: Tensor) -> Tensor:
    """The w that minimises Q on a support: the normal equations of the rows [A_S; sqrt(mu) I]."""
    A = problem.matrix.whole().double().t().numpy()
    kept = support.numpy()
    d = -problem.w0.double().numpy().copy()
    d[kept] = 0.0
    c = A @ d + problem.offset.double().numpy()
    stacked = np.vstack([A[:, kept], problem.mu**0.5 * np.eye(len(kept))])
    d[kept] = np.linalg.lstsq(stacked, -np.concatenate([c, np.zeros(len(kept))]), rcond=None)[0]
    return torch.from_numpy(d) + problem.w0.double()


def brute_force(problem: Problem, k: int) -> float:
    """The least Q over all supports of size k."""
    A = problem.matrix.whole().double().t().numpy()
    w0, c = problem.w0.double().numpy(), problem.offset.double().numpy()
    supports = np.array(list(combinations(range(len(w0)), k)))
    hessian = A.T @ A + problem.mu * np.eye(len(w0))
    linear = hessian @ w0 - A.T @ c  # Q(w) = 1/2 w^T H w - w^T linear + constant
    blocks = hessian[supports[:, :, None], supports[:, None, :]]
    solved = np.linalg.solve(blocks, linear[supports][:, :, None])[:, :, 0]
    constant = 0.5 * w0 @ hessian @ w0 - w0 @ A.T @ c + 0.5 * c @ c
    return float(constant - 0.5 * (solved * linear[supports]).sum(1).max())


def sparse_point(problem: Problem, support: Tensor, values: Tensor) -> Iterate:
    w = torch.zeros_like(problem.w0)
    w[support] = values
    return problem.at(w, support)
