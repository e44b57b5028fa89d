"""Products, factors and order statistics of a batch of matrices, in one call for all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.matrix.gradient_matrix import add_lower_gram


def times(v: Tensor, matrices: Tensor) -> Tensor:
    """Return v^T M for each of a batch, (b, i) and (b, i, j) to (b, j).

    On a CPU, a batch of row-matrix products is much faster than one of matrix-column products.
    """
    return (v[:, None] @ matrices)[:, 0]


def lower_gram(x: Tensor) -> Tensor:
    """Return the lower triangle of x^T x, (b, i, j) to (b, j, j); the upper one is undefined."""
    product = x.new_zeros(len(x), x.shape[2], x.shape[2])
    add_lower_gram(product, x)
    return product


def definite_factor(systems: Tensor) -> Tensor:
    """Return the lower Cholesky factors of the systems of a layer, (m, m) or (b, m, m).

    Raises:
        ChitaError: a system is not positive definite, which a ridge prevents.
    """
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(systems)
    if bool((failed != 0).any()):
        raise ChitaError(
            "ridge must be greater than 0, such as 0.01, for a layer whose inputs are linearly "
            "dependent"
        )
    return factor


def largest(x: Tensor, count: int) -> Tensor:
    """Return the indices of the `count` largest entries of each row, (b, B) to (b, count).

    The largest comes first. Of equal entries the lowest indices win and come first, on every device
    and in every run.
    """
    x = x.masked_fill(x.isnan(), -torch.inf)  # an overflow is not chosen, and shows in Q
    smallest = x.topk(count, sorted=False).values.amin(1, keepdim=True)
    above, equal = x > smallest, x == smallest
    left = count - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1) <= left))
    places = chosen.nonzero()[:, 1].view(len(x), count)
    order = x.gather(1, places).sort(stable=True, dim=1, descending=True).indices
    return places.gather(1, order)
