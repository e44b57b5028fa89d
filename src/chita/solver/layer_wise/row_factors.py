"""The systems H_SS of single rows, gathered and factorised.

The rows are ordered by the size of their supports and gathered in batches, padded with the identity
to the largest support of a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WORKSPACE = 1 << 22  # the most bytes of the systems in a batch: they stay in the cache
WORKSPACE_OF_GPU = 1 << 28

# Systems, (b, m, m), and right-hand sides, (b, m) -> the solutions and the jitters, (b,).
Solve = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def factorise(
    hessian: Tensor, mask: Tensor, solve: Solve, right: Tensor, left: Tensor
) -> tuple[Tensor, float]:
    """Return the solutions of H_SS y_S = right_S for some rows, and the largest jitter.

    Args:
        hessian: H, (groups, i, i), in whose type the systems are solved.
        mask: the support of each row, (groups, rows, i) bool.
        solve: solves a batch of systems.
        right: the right-hand sides, (groups, rows, i).
        left: the rows to solve, (groups, rows, 1) bool; the others get zeros.
    """
    solutions, largest = torch.zeros_like(right), 0.0
    for group, rows in enumerate(left[..., 0]):
        sizes = mask[group].sum(1)
        order = sizes.argsort()
        order = order[rows[order] & (sizes[order] > 0)]
        padded = torch.constant_pad_nd(hessian[group], (0, 1, 0, 1))  # the last column is zero
        for part in _batches(order, sizes[order], hessian):
            found, jitter = _solve(padded, mask[group, part], solve, right[group, part])
            solutions[group, part] = found.to(right.dtype)
            largest = max(largest, jitter)
    return solutions, largest


def undamped_solve(systems: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the solutions of systems, (b, m), zero for those that are not positive definite."""
    factors, failed = torch.linalg.cholesky_ex(systems)
    found = torch.cholesky_solve(right[:, :, None], factors)[:, :, 0]
    return found.masked_fill_((failed != 0)[:, None], 0.0), found.new_zeros(len(found))


def _batches(rows: Tensor, sizes: Tensor, hessian: Tensor) -> list[Tensor]:
    """Divide rows into batches whose systems, of the largest size, fit into the workspace."""
    if not len(rows):
        return []
    workspace = WORKSPACE if hessian.device.type == "cpu" else WORKSPACE_OF_GPU
    at_once = workspace // (hessian.element_size() * int(sizes.max()) ** 2)
    return list(torch.split(rows, max(1, at_once)))


def _solve(padded: Tensor, mask: Tensor, solve: Solve, right: Tensor) -> tuple[Tensor, float]:
    """Return the solutions for a batch of rows, and the largest jitter.

    Args:
        padded: H with a zero row and column at the end, (i + 1, i + 1).
        mask: the supports, (rows, i) bool, of which none is empty.
        solve: solves a batch of systems.
        right: (rows, i).
    """
    size = int(mask.sum(1).max())
    inside, columns = mask.byte().sort(dim=1, descending=True, stable=True)
    columns, real = columns[:, :size], inside[:, :size].bool()
    filled = columns.where(real, len(padded) - 1)
    systems = padded[filled].take_along_dim(filled[:, None, :], dim=2)
    systems.diagonal(dim1=1, dim2=2).add_(~real)
    found, jitter = solve(systems, (right.gather(1, columns) * real).to(systems.dtype))
    solutions = torch.zeros_like(right, dtype=found.dtype).scatter_(1, columns, found)
    return solutions, float(jitter.max())
