"""Products, order statistics and damped systems of a batch of matrices, one call for all."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.matrix.gradient_matrix import add_lower_gram


def times(v: Tensor, matrices: Tensor) -> Tensor:
    """v^T M for each of a batch, (b, i) and (b, i, j) to (b, j).

    On a CPU a batch of rows times matrices is many times faster than of matrices times columns.
    """
    return (v[:, None] @ matrices)[:, 0]


def lower_gram(x: Tensor) -> Tensor:
    """The lower triangle of x^T x, (b, i, j) to (b, j, j); the upper one means nothing."""
    product = x.new_zeros(len(x), x.shape[2], x.shape[2])
    add_lower_gram(product, x)
    return product


def largest(x: Tensor, count: int) -> Tensor:
    """The places of the `count` largest of each row, (b, B) to (b, count), the largest first.

    Among equals the lowest places win and come first, on every device and every run.
    """
    x = x.masked_fill(x.isnan(), -torch.inf)  # what overflowed is not chosen, and told by Q
    smallest = x.topk(count, sorted=False).values.amin(1, keepdim=True)
    above, equal = x > smallest, x == smallest
    left = count - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1) <= left))
    places = chosen.nonzero()[:, 1].view(len(x), count)
    order = x.gather(1, places).sort(stable=True, dim=1, descending=True).indices
    return places.gather(1, order)


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
