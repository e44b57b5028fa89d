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
    """The minimiser on the support, and the jitter its system needed (usually 0)."""

    point: Iterate
    jitter: float


def backsolve(problem: Problem, x: Iterate) -> Backsolved:
    """The minimiser of Q over all w with the support of x: one gather and one Gram product."""
    support, matrix, k = x.support, problem.matrix, problem.kept(x)
    if k == 0:
        return Backsolved(x, 0.0)
    if k < problem.p and not problem.ranks.all(matrix.gathers_fast):
        # Here a gather costs more than all that follows: once is enough.
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
    # On a support that is solved already the answer differs by rounding alone: keep the better.
    return Backsolved(point if point.objective <= x.objective else x, jitter)


def rounds_too_much(dtype: torch.dtype, n: int, largest: float, mu: float) -> bool:
    """Whether the rounding of an n x n Gram product is not small beside mu.

    The rounding errors of the entries are about eps max_i |a_i|^2, and as a random matrix their
    norm is about sqrt(n) times that.

    Args:
        dtype: that the product is accumulated in.
        n: its size.
        largest: max_i |a_i|^2 over the rows.
        mu: what is added to its diagonal.
    """
    error: float = torch.finfo(dtype).eps * n**0.5 * largest
    return 10 * error > mu


def gram_dtype(problem: Problem, support: Tensor) -> torch.dtype:
    """float64 where the rounding of a float32 Gram product is not small beside mu."""
    matrix = problem.matrix
    largest = float(matrix.row_square_norms(support).max())
    wide = rounds_too_much(matrix.dtype, matrix.n, largest, problem.mu)
    return torch.float64 if wide else matrix.dtype


def damped_solve(systems: Tensor, mu: float, rhs: Tensor) -> tuple[Tensor, Tensor]:
    """(system + (mu + jitter) I)^-1 rhs, the jitter 0 wherever Cholesky succeeds without.

    Args:
        systems: (b, m, m), of which the lower triangles will do; factorised in float64.
        mu: the damping.
        rhs: (b, m).

    Returns:
        The solutions, (b, m), and the jitters, (b,).
    """
    systems = systems.to(torch.float64, copy=True)
    diagonals = systems.diagonal(dim1=1, dim2=2)
    diagonals += mu
    # Enough that the huge solutions of a nearly singular system do not drown in their rounding.
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
    """(system + (mu + jitter) I)^-1 rhs, and the jitter, which is told if there is any."""
    solution, jitters = damped_solve(system[None], mu, rhs[None])
    jitter = float(jitters)
    if jitter:
        logger.warning(SINGULAR, jitter)
    return solution[0], jitter
