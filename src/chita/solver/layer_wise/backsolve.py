"""The exact minimiser of a layer's problem on the support of each row.

Row r with support S has the normal equations H_SS w_S = (W0 H)_rS. Conjugate gradients solve them
for all rows at once, with one product with H in each step. Rows that do not converge, because H is
ill-conditioned on their support, are factorised. Gradients couple the rows to one system, which
conjugate gradients solve to the end.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from chita.solver.backsolve import damped_solve
from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.row_systems import System, rows_of, system_of

ROUNDS = 3  # of iterative refinement, after which the rows that are left are factorised
STEPS = 60  # of conjugate gradients in a round
LAST_STEPS = 1000  # in float64, for rows that gradients couple, instead of the factorisation
CHECK = 10  # steps between two checks of the residuals
FEWER = 0.75  # the share of the rows that are left at which the others are put aside
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
    system = system_of(layer, mask)
    weight = layer.hessian.diagonal(dim1=1, dim2=2)[:, None]
    allowed = EXACT[dtype] ** 2 * system.total(w0.square() * weight)
    w = (w0 if start is None else start.double()) * mask
    for refined in range(ROUNDS + 1):
        residual = -layer.gradient(w) * mask
        left = system.total(residual * system.conditioned(residual)) > allowed
        if refined == ROUNDS or not bool(left.any()):
            break
        w += conjugate_gradients(system, residual.to(dtype), steps=STEPS, allowed=allowed)
    if not bool(left.any()):
        return w
    if layer.gradients is not None:
        exact = system_of(layer, mask, torch.float64)
        return w + conjugate_gradients(exact, residual, steps=LAST_STEPS, allowed=allowed)
    for group, (hessian, rows) in enumerate(zip(layer.hessian, left[..., 0], strict=True)):
        unsolved = rows.nonzero()[:, 0]
        if len(unsolved):
            right = w0[group, unsolved] @ hessian
            w[group, unsolved] = factorise(hessian, right, mask[group, unsolved])
    return w


def minimise(layer: Layer, mask: Tensor, start: Tensor, steps: int) -> Tensor:
    """Return a point near the minimiser over the mask, after some steps in the type of `start`."""
    w = start * mask
    residual = -layer.gradient(w) * mask
    return w + conjugate_gradients(system_of(layer, mask), residual, steps=steps)


def conjugate_gradients(
    system: System, right: Tensor, *, steps: int, allowed: Tensor | None = None
) -> Tensor:
    """Return an approximate solution of a system on a support; independent rows are solved at once.

    Args:
        system: the system.
        right: the right-hand sides, (groups, rows, i), zero outside the support.
        steps: the most steps.
        allowed: for each independent system the squared residual, in the norm of the
            preconditioner, at which it is solved; None to take all steps.
    """
    direction = system.conditioned(right)
    energy = system.total(right * direction)
    start = Progress(torch.zeros_like(right), right.clone(), direction, energy)
    return _descend(system, start, steps, allowed)


class Progress(NamedTuple):
    """The state of conjugate gradients, (groups, rows, i) each, and (groups, rows, 1) the energy.

    Attributes:
        y: the present solutions.
        residual: their residuals.
        direction: the next directions.
        energy: the squared norm of each residual.
    """

    y: Tensor
    residual: Tensor
    direction: Tensor
    energy: Tensor


def _descend(system: System, at: Progress, steps: int, allowed: Tensor | None) -> Tensor:
    """Take steps of conjugate gradients, and go on without the rows that are solved."""
    y, residual, direction, energy = at
    tiny = torch.finfo(y.dtype).tiny
    for step in range(steps):
        if allowed is not None and step % CHECK == 0:
            left = energy > allowed
            most = int(left.sum(1).max())
            if not most:
                break
            if most <= FEWER * left.shape[1]:
                rows = left.byte().sort(dim=1, descending=True, stable=True).indices[:, :most]
                at = Progress(*(rows_of(each, rows) for each in (y, residual, direction, energy)))
                found = _descend(system.of(rows), at, steps - step, rows_of(allowed, rows))
                return y.scatter(1, rows.expand_as(found), found)
        image = system.product(direction)
        length = energy / system.total(direction * image).clamp_min(tiny)
        y.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1)
        conditioned = system.conditioned(residual)
        after = system.total(residual * conditioned)
        direction = conditioned.addcmul_(after / energy.clamp_min(tiny), direction)
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
    padded = hessian.new_zeros(len(hessian) + 1, len(hessian) + 1)  # the last column is zero
    padded[:-1, :-1] = hessian
    at_once = max(1, WORKSPACE // (8 * size * size))
    for start in range(0, len(mask), at_once):
        part = slice(start, start + at_once)
        inside, columns = mask[part].to(torch.int8).sort(dim=1, descending=True, stable=True)
        columns, real = columns[:, :size], inside[:, :size].bool()
        filled = columns.where(real, len(hessian))
        systems = padded[filled[:, :, None], filled[:, None, :]]
        systems.diagonal(dim1=1, dim2=2).add_(~real)
        found, _ = damped_solve(systems, 0.0, right[part].gather(1, columns) * real)
        solutions[part] = torch.zeros_like(right[part]).scatter_(1, columns, found)
    return solutions
