"""The exact minimiser on a support (algorithm 5, eq. bs), by the Woodbury formula.

With c the residual when d_S = 0, the minimiser over the weights of S is

    d_S = -A_S^T (A_S A_S^T + mu I_n)^-1 c        n x n, when k > n
    d_S = -(A_S^T A_S + mu I_k)^-1 A_S^T c        k x k, when k <= n

Both systems are factorised in float64.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.problem import Iterate, Problem

logger = logging.getLogger(__name__)

SINGULAR = "the backsolve's system is singular: %.3g added to its diagonal"


@dataclass(frozen=True)
class Backsolved:
    """The minimiser on the support, and the jitter added to its system (usually 0)."""

    point: Iterate
    jitter: float


def backsolve(problem: Problem, x: Iterate) -> Backsolved:
    """Return the minimiser of Q over all w with x's support: one gather and one Gram product."""
    support, matrix, k = x.support, problem.matrix, problem.kept(x)
    if k == 0:
        return Backsolved(x, 0.0)
    if k < problem.p and not problem.ranks.all(matrix.gathers_fast):
        # Gathering columns costs more than the rest of the backsolve here, so gather once.
        part = problem.restrict(support, matrix.columns(support), x)
        solved = backsolve(part, problem.drop(support, x))
        return Backsolved(problem.lift(support, solved.point), solved.jitter)
    d = x.w - problem.w0
    c = x.rho - matrix.combine(support, d[support])
    if k > matrix.n:
        dtype = gram_dtype(problem, support)
        y, jitter = _solve(matrix.gram(support, dtype), problem.mu, c.to(dtype))
        parts = [-(chunk.to(dtype) @ y) for chunk in matrix.chunks(support)]
        d_S = torch.cat([y[:0], *parts])
    else:
        columns = problem.ranks.gather(matrix.columns(support).whole().double())
        d_S, jitter = _solve(columns @ columns.t(), problem.mu, -(columns @ c.double()))
        first = problem.ranks.before(len(support))
        d_S = d_S[first : first + len(support)]
    d_S = d_S.to(d.dtype)
    w = torch.zeros_like(x.w)
    w[support] = problem.w0[support] + d_S
    rho = c + matrix.combine(support, d_S)
    point = Iterate(w, support, rho, problem.objective(w, rho))
    # On a support that is already solved, the result differs only by rounding: keep the better one.
    return Backsolved(point if point.objective <= x.objective else x, jitter)


def rounds_too_much(dtype: torch.dtype, n: int, largest: float, mu: float) -> bool:
    """Return whether the rounding error of an n x n Gram product is too large relative to mu.

    The rounding errors of the entries are about eps max_i |a_i|^2. The norm of a random matrix of
    such entries is about sqrt(n) times that.

    Args:
        dtype: the type in which the product is accumulated.
        n: the size of the product.
        largest: max_i |a_i|^2 over the rows.
        mu: the damping on the diagonal.
    """
    error: float = torch.finfo(dtype).eps * n**0.5 * largest
    return 10 * error > mu


def gram_dtype(problem: Problem, support: Tensor) -> torch.dtype:
    """Return float64 if a float32 Gram product rounds too much relative to mu, else A's type."""
    matrix = problem.matrix
    largest = float(matrix.row_square_norms(support).max())
    wide = rounds_too_much(matrix.dtype, matrix.n, largest, problem.mu)
    return torch.float64 if wide else matrix.dtype


def damped_solve(systems: Tensor, mu: float, rhs: Tensor) -> tuple[Tensor, Tensor]:
    """Return (system + (mu + jitter) I)^-1 rhs; the jitter is 0 where Cholesky succeeds without it.

    Args:
        systems: (b, m, m), of which only the lower triangles are read; factorised in float64.
        mu: the damping.
        rhs: (b, m).

    Returns:
        The solutions, (b, m), and the jitters, (b,).
    """
    systems = systems.to(torch.float64, copy=True)
    diagonals = systems.diagonal(dim1=1, dim2=2)
    diagonals += mu
    # Large enough that rounding does not dominate the huge solutions of nearly singular systems.
    scale = diagonals.amax(1)
    least = torch.finfo(torch.float64).eps ** (2 / 3) * scale.masked_fill(scale == 0, 1.0)
    jitter = torch.zeros_like(least)
    factors, failed = torch.linalg.cholesky_ex(systems)
    while len(broken := failed.nonzero()[:, 0]):
        added = torch.where(jitter > 0, 9 * jitter, least)[broken]
        if not bool((added < 1e6 * least[broken]).all()):
            raise ChitaError("the backsolve's system is not finite: A holds too large values")
        jitter[broken] += added
        diagonals[broken] += added[:, None]
        factors[broken], failed[broken] = torch.linalg.cholesky_ex(systems[broken])
    solutions = torch.cholesky_solve(rhs.double()[:, :, None], factors)[:, :, 0]
    return solutions.to(rhs.dtype), jitter


def _solve(system: Tensor, mu: float, rhs: Tensor) -> tuple[Tensor, float]:
    """Return (system + (mu + jitter) I)^-1 rhs and the jitter; log a warning if it is not 0."""
    solution, jitters = damped_solve(system[None], mu, rhs[None])
    jitter = float(jitters)
    if jitter:
        logger.warning(SINGULAR, jitter)
    return solution[0], jitter
