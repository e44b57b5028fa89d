"""The exact minimiser of a layer's problem on the support of each row.

Row r with support S has the normal equations H_SS w_S = (W0 H)_rS. Conjugate gradients solve them
for all rows at once, with one product with H in each step. Rows that do not converge, because H is
ill-conditioned on their support, are factorised.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.backsolve import damped_solve
from chita.solver.layer_wise.layer import Layer

ROUNDS = 5  # of iterative refinement, after which the rows that are left are factorised
STEPS = 60  # of conjugate gradients in a round
CHECK = 10  # steps between two checks of the residuals
# The energy norm of the error, relative to that of W0, at which a row counts as solved: the error
# of the objective is its square.
EXACT = {torch.float32: 1e-4, torch.float64: 1e-12}
WORKSPACE = 1 << 28  # bytes of the systems that are factorised together


def backsolve(layer: Layer, mask: Tensor, start: Tensor | None = None) -> Tensor:
    """Return the minimiser of Q over the weights in the mask, (groups, rows, i), in float64.

    Conjugate gradients run in the type of the weights, and the residual is computed in float64:
    iterative refinement reaches the accuracy of float64 at the cost of float32.

    Args:
        layer: the layer.
        mask: the support, (groups, rows, i) bool.
        start: a point near the solution; W0 by default.
    """
    w0, dtype = layer.w0.double(), layer.w0.dtype
    inverse = 1 / layer.hessian.diagonal(dim1=1, dim2=2)[:, None]
    allowed = EXACT[dtype] ** 2 * (w0.square() / inverse).sum(-1)
    w = (w0 if start is None else start.double()) * mask
    for refined in range(ROUNDS + 1):
        residual = ((w0 - w) @ layer.hessian) * mask
        left = (residual.square() * inverse).sum(-1) > allowed
        if refined == ROUNDS or not bool(left.any()):
            break
        right = residual.to(dtype)
        w += conjugate_gradients(layer.products, right, mask, steps=STEPS, allowed=allowed)
    for group, (hessian, rows) in enumerate(zip(layer.hessian, left, strict=True)):
        unsolved = rows.nonzero()[:, 0]
        if len(unsolved):
            right = w0[group, unsolved] @ hessian
            w[group, unsolved] = factorise(hessian, right, mask[group, unsolved])
    return w


def conjugate_gradients(
    hessian: Tensor, right: Tensor, mask: Tensor, *, steps: int, allowed: Tensor | None = None
) -> Tensor:
    """Return an approximate solution of H_SS y_S = right_S for all rows at once.

    The rows are independent, and preconditioned by the diagonal of H.

    Args:
        hessian: H, (groups, i, i).
        right: the right-hand sides, (groups, rows, i), zero outside the mask.
        mask: the support S of each row, of the same shape.
        steps: the most steps.
        allowed: for each row the squared residual, in the norm of the preconditioner, at which it
            is solved, (groups, rows); None to take all steps.
    """
    tiny = torch.finfo(hessian.dtype).tiny
    inverse = 1 / hessian.diagonal(dim1=1, dim2=2)[:, None]
    y, residual = torch.zeros_like(right), right
    direction = residual * inverse
    energy = (residual * direction).sum(-1, keepdim=True)
    for step in range(steps):
        if allowed is not None and step % CHECK == 0 and bool((energy[..., 0] <= allowed).all()):
            break
        image = (direction @ hessian) * mask
        length = energy / (direction * image).sum(-1, keepdim=True).clamp_min(tiny)
        y = torch.addcmul(y, length, direction)
        residual = torch.addcmul(residual, length, image, value=-1)
        conditioned = residual * inverse
        after = (residual * conditioned).sum(-1, keepdim=True)
        direction = torch.addcmul(conditioned, after / energy.clamp_min(tiny), direction)
        energy = after
    return y


def factorise(hessian: Tensor, right: Tensor, mask: Tensor) -> Tensor:
    """Return the solutions of H_SS w_S = right_S, (rows, i), by Cholesky in float64.

    Rows are gathered to systems of the size of the largest support, padded with the identity.

    Args:
        hessian: H, (i, i).
        right: (rows, i).
        mask: the support of each row, (rows, i) bool.
    """
    size = int(mask.sum(1).max()) if len(mask) else 0
    if size == 0:
        return torch.zeros_like(right)
    solutions = torch.zeros_like(right)
    at_once = max(1, WORKSPACE // (8 * size * size))
    for start in range(0, len(mask), at_once):
        part = slice(start, start + at_once)
        inside, columns = mask[part].to(torch.int8).sort(dim=1, descending=True, stable=True)
        columns, real = columns[:, :size], inside[:, :size].double()
        systems = hessian[columns[:, :, None], columns[:, None, :]]
        systems *= real[:, :, None] * real[:, None, :]
        systems.diagonal(dim1=1, dim2=2).add_(1 - real)
        found, _ = damped_solve(systems, 0.0, right[part].gather(1, columns) * real)
        solutions[part] = torch.zeros_like(right[part]).scatter_(1, columns, found)
    return solutions
