"""The exact minimiser of a layer's problem on the support of each row.

Row r with support S has the normal equations H_SS w_S = (W0 H)_rS. Conjugate gradients solve them
for all rows at once, with one product with H in each step. Rows whose convergence is slow, because
H is ill-conditioned on their support, are factorised instead. Gradients couple the rows to one
system, which conjugate gradients solve to the end.

Every correction is computed in the type of the weights from a residual in float64. This iterative
refinement reaches the accuracy of float64 at the cost of float32.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from chita.solver.backsolve import SINGULAR, damped_solve
from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.row_factors import factorise, undamped_solve
from chita.solver.layer_wise.row_systems import System, rows_of, system_of

logger = logging.getLogger(__name__)

ROUNDS = 3  # rounds of iterative refinement before the last one, which is in float64
STEPS = 50  # steps of conjugate gradients in a round
# Independent rows take 1 step more for so many inputs i, and are factorised if that is not enough:
# the factorisation of a support of i / 2 weights costs as much as i / 48 products with H.
INPUTS_FOR_A_STEP = 48
LAST_STEPS = 1000  # steps in float64 for rows that gradients couple, instead of a factorisation
CHECK = 10  # steps between two checks of the residuals
FEWER = 0.75  # rows that are done are put aside when at most this share of the rows is left
# The energy norm of the error, relative to that of W0, at which a row counts as solved: the error
# of the objective is its square.
EXACT = {torch.float32: 1e-4, torch.float64: 1e-12}
UNSOLVED = (
    "the weights on the support of a layer are not its exact minimiser: conjugate gradients have "
    "not converged; a larger ridge helps"
)

# The residual, (groups, rows, i), and the rows that are not solved, (groups, rows, 1) -> the change
# of the weights, and the jitter that was added to a system.
Correction = Callable[[Tensor, Tensor], tuple[Tensor, float]]


class Backsolved(NamedTuple):
    """The weights on a support, and how exact they are.

    Attributes:
        w: the minimiser of Q on the support, (groups, rows, i) in float64.
        jitter: the largest value added to the diagonal of a singular system (usually 0).
        converged: whether all rows are solved.
    """

    w: Tensor
    jitter: float
    converged: bool


def backsolve(layer: Layer, mask: Tensor, start: Tensor | None = None) -> Backsolved:
    """Return the minimiser of Q over the weights in the mask.

    Args:
        layer: the layer.
        mask: the support, (groups, rows, i) bool.
        start: a point near the solution; W0 by default.
    """
    w0, system = layer.w0.double(), system_of(layer, mask)
    weight = layer.hessian.diagonal(dim1=1, dim2=2)[:, None]
    allowed = EXACT[layer.w0.dtype] ** 2 * system.total(w0.square() * weight)
    w, largest = (w0 if start is None else start.double()) * mask, 0.0
    for correct in [*_corrections(layer, mask, system, allowed), None]:
        residual = -layer.gradient(w) * mask
        left = system.total(residual * system.conditioned(residual)) > allowed
        if correct is None or not bool(left.any()):
            break
        change, jitter = correct(residual, left)
        w, largest = w + change, max(largest, jitter)
    if largest:
        logger.warning(SINGULAR, largest)
    converged = not bool(left.any())
    if not converged:
        logger.warning(UNSOLVED)
    return Backsolved(w, largest, converged)


def _corrections(layer: Layer, mask: Tensor, system: System, allowed: Tensor) -> list[Correction]:
    """Return the corrections to try, one after the other, until all rows are solved."""
    if layer.gradients is None:
        steps = STEPS + mask.shape[-1] // INPUTS_FOR_A_STEP
        descend = partial(_descent, system, allowed, layer.w0.dtype, steps, drop_slow=True)
        factors = partial(factorise, layer.products, mask, undamped_solve)
        exact = partial(factorise, layer.hessian, mask, lambda a, b: damped_solve(a, 0.0, b))
        return [descend, *(ROUNDS - 1) * [factors], exact]
    descend = partial(_descent, system, allowed, layer.w0.dtype, STEPS)
    return [*ROUNDS * [descend], partial(_last_descent, layer, mask, allowed)]


def _descent(
    system: System,
    allowed: Tensor,
    dtype: torch.dtype,
    steps: int,
    residual: Tensor,
    left: Tensor,
    *,
    drop_slow: bool = False,
) -> tuple[Tensor, float]:
    """Correct the weights by conjugate gradients."""
    right = residual.to(dtype)
    change = conjugate_gradients(system, right, steps=steps, allowed=allowed, drop_slow=drop_slow)
    return change, 0.0


def _last_descent(
    layer: Layer, mask: Tensor, allowed: Tensor, residual: Tensor, left: Tensor
) -> tuple[Tensor, float]:
    """Correct the weights by many conjugate gradients in float64."""
    exact = system_of(layer, mask, torch.float64)
    return _descent(exact, allowed, torch.float64, LAST_STEPS, residual, left)


def minimise(layer: Layer, mask: Tensor, start: Tensor, steps: int) -> Tensor:
    """Return a point near the minimiser over the mask, after some steps in the type of `start`."""
    w = start * mask
    residual = -layer.gradient(w) * mask
    return w + conjugate_gradients(system_of(layer, mask), residual, steps=steps)


def conjugate_gradients(
    system: System,
    right: Tensor,
    *,
    steps: int,
    allowed: Tensor | None = None,
    drop_slow: bool = False,
) -> Tensor:
    """Return an approximate solution of a system on a support; independent rows are solved at once.

    Args:
        system: the system.
        right: the right-hand sides, (groups, rows, i), zero outside the support.
        steps: the most steps.
        allowed: for each independent system the squared residual, in the norm of the
            preconditioner, at which it is solved; None to take all steps.
        drop_slow: whether to stop early for systems that would need more than `steps` steps.
    """
    direction = system.conditioned(right)
    energy = system.total(right * direction)
    start = Progress(torch.zeros_like(right), right.clone(), direction, energy, energy)
    return _descend(system, start, range(steps), allowed, drop_slow=drop_slow)


class Progress(NamedTuple):
    """The state of conjugate gradients, (groups, rows, i) each, and (groups, rows, 1) the energies.

    Attributes:
        y: the present solutions.
        residual: their residuals.
        direction: the next directions.
        energy: the squared norm of each residual.
        first: the same before the first step.
    """

    y: Tensor
    residual: Tensor
    direction: Tensor
    energy: Tensor
    first: Tensor


def _descend(
    system: System, at: Progress, steps: range, allowed: Tensor | None, *, drop_slow: bool
) -> Tensor:
    """Take steps of conjugate gradients, and go on without the rows that are done."""
    y, residual, direction, energy, first = at
    tiny = torch.finfo(y.dtype).tiny
    for step in steps:
        if allowed is not None and step % CHECK == 0:
            left = energy > allowed
            if drop_slow and step:
                left &= ~_slow(energy / first, allowed / first, step / steps.stop)
            most = int(left.sum(1).max())
            if not most:
                break
            if most <= FEWER * left.shape[1]:
                rows = left.byte().sort(dim=1, descending=True, stable=True).indices[:, :most]
                at = Progress(*(rows_of(x, rows) for x in (y, residual, direction, energy, first)))
                rest = range(step, steps.stop)
                part = rows_of(allowed, rows)
                found = _descend(system.of(rows), at, rest, part, drop_slow=drop_slow)
                return y.scatter(1, rows.expand_as(found), found)
        image = system.product(direction)
        curvature = system.total(direction * image)  # not positive by rounding if H is singular
        length = torch.where(curvature > tiny, energy / curvature, 0.0)
        y.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1)
        conditioned = system.conditioned(residual)
        after = system.total(residual * conditioned)
        direction = conditioned.addcmul_(after / energy.clamp_min(tiny), direction)
        energy = after
    return y


def _slow(reached: Tensor, wanted: Tensor, share: float) -> Tensor:
    """Return which rows would miss the wanted energy if the rest of the steps were like the first.

    Args:
        reached: the energy, relative to the first one.
        wanted: the wanted one, relative to the first one.
        share: the share of the steps that were taken.
    """
    return reached.log() > share * wanted.log()
