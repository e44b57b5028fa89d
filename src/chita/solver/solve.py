"""chita.solve: the optimiser alone, on arrays or tensors."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from chita.errors import ChitaError, is_count, is_finite, is_natural, is_one_of
from chita.solver.algorithm import Algorithm, Layout, SupportThenUpdate
from chita.solver.backsolve import SINGULAR
from chita.solver.blocks.batched_problem import BatchedPoint, BatchedProblem, BatchedSolution
from chita.solver.blocks.batched_solve import batched_backsolve, batched_iht
from chita.solver.iht_active_set import (
    active_set,
    no_refinement,
    refine_by_backsolve,
    refine_by_descent,
)
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options, Trace
from chita.solver.precision import own_precision
from chita.solver.problem import Iterate, Problem

logger = logging.getLogger(__name__)

Solver = Literal["bso", "cd", "iht"]

ROUNDING = 1e-4  # relative rounding error of an objective after many float32 residual updates


@dataclass(frozen=True)
class Solution:
    """A solution of problem (main-problem).

    Attributes:
        w: the weights, (p,), an array or tensor like the input.
        support: the k indices that are kept, sorted.
        objective: the global Q(w), freshly computed.
        iterations: the number of IHT updates.
        converged: whether the objective settled before the iterations were used up.
        history: the objective at P_k(w0) and after each iteration; that of CHITA never rises.
        jitter: the value added to the diagonal of a singular system (usually 0).
    """

    w: Any
    support: Any
    objective: float
    iterations: int
    converged: bool
    history: list[float] = field(repr=False)
    jitter: float = 0.0


def iht_support(
    problem: Problem, x: Iterate, options: Options, trace: Trace
) -> tuple[Iterate, bool]:
    """Run algorithm 4 without refinement: IHT on an active set."""
    return active_set(problem, x, options, no_refinement, trace)


def refined_support(
    problem: Problem, x: Iterate, options: Options, trace: Trace
) -> tuple[Iterate, bool]:
    """Run algorithm 4 with the refinement `options.inner`."""
    refine = refine_by_descent if options.inner == "cd" else refine_by_backsolve
    return active_set(problem, x, options, refine, trace)


def batched_bso(
    problem: BatchedProblem, x: BatchedPoint, options: Options, trace: Trace
) -> BatchedSolution:
    """Run algorithm 5 in a batch of blocks, which are small and need no active set."""
    x, updates, settled = batched_iht(problem, x, options)
    kept = problem.inside(x)
    still = problem.unmoved(kept)
    x, jitter = batched_backsolve(problem, x, still)
    if jitter and not trace.jitter:
        logger.warning(SINGULAR, jitter)
    trace.iterations = max(trace.iterations, updates)
    trace.jitter = max(trace.jitter, jitter)
    return BatchedSolution(problem.spread(x.support, x.values), kept, x.rho, still, settled)


ALGORITHMS: dict[str, Algorithm] = {
    "bso": SupportThenUpdate(iht_support, refine_by_backsolve, batched_bso),  # algorithm 5
    "cd": SupportThenUpdate(refined_support, no_refinement),  # algorithm 4
    "iht": SupportThenUpdate(iht_support, no_refinement),
}


def solve_problem(
    problem: Problem,
    k: int,
    algorithm: Algorithm,
    *,
    options: Options,
    layout: Layout | None = None,
) -> Solution:
    """Solve a problem on tensors; the default layout is one layer without blocks.

    Raises:
        ChitaError: `algorithm.run` does not return a point and whether it converged.
    """
    trace = Trace(options.iterations)
    layout = layout or Layout((problem.matrix.p,))
    problem, unit = problem.in_ordinary_units()
    x, converged = _checked(algorithm, algorithm.run(problem, k, layout, options, trace))
    # The final objective is freshly computed. Values in the history that are lower only by rounding
    # of the updated residual are raised to it. (Other methods may truly end above their start.)
    rounded = x.objective * (1 - ROUNDING)
    history = [max(v, x.objective) if v >= rounded else v for v in trace.history] + [x.objective]
    objective, *history, jitter = (v / unit / unit for v in (x.objective, *history, trace.jitter))
    return Solution(x.w, x.support, objective, trace.iterations, converged, history, jitter)


def _checked(algorithm: Algorithm, found: Any) -> tuple[Iterate, bool]:
    """Return what `algorithm.run` returned, after a check: a user may have written it."""
    items = found if isinstance(found, tuple) else (found,)
    match items:
        case (Iterate() as x, bool() as converged):
            return x, converged
    got = ", ".join(type(item).__name__ for item in items)
    raise ChitaError(
        f"{type(algorithm).__name__}.run must return (Iterate, bool), a tuple of the point and "
        f"whether it converged, got {f'({got})' if isinstance(found, tuple) else got}"
    )


@torch.no_grad()
@own_precision()
def solve(
    A: Any,
    w0: Any,
    k: int,
    *,
    lam: float,
    alpha: float = 0.0,
    method: Solver = "bso",
    block_size: int | None = None,
    layers: Sequence[int] | None = None,
    **options: Any,
) -> Solution:
    """Minimise 1/2 |A d + alpha e|^2 + (n lam / 2) |d|^2 over w = w0 + d with at most k non-zeros.

    Args:
        A: n x p, array or tensor on any device; types other than float64 become float32.
        w0: the trained weights, (p,).
        k: the number of weights to keep.
        lam: the ridge lambda.
        alpha: the scale of the first-order term; 1/m for mini-batches of size m, 0 drops it.
        method: "bso" (algorithm 5), "cd" (algorithm 4) or "iht" alone.
        block_size: solve in diagonal blocks of at most this size (algorithm 6).
        layers: the sizes of the layers, which blocks do not cross; one layer by default.
        options: any field of `Options`: iterations, t_ht, t_cd, gamma, active, inner, tol, step,
            continuation, block_sweeps, seed.
    """
    matrix, start = _as_matrix(A, w0)
    _check(matrix, start, k, lam, alpha, method)
    layout = _layout(matrix.p, layers, block_size)
    problem = Problem.build(matrix, start, lam=float(lam), alpha=float(alpha))
    solution = solve_problem(
        problem, k, ALGORITHMS[method], options=Options.named(options), layout=layout
    )
    if not math.isfinite(solution.objective):
        raise ChitaError("the objective overflowed: A, w0 or alpha are too large; scale them down")
    if isinstance(w0, Tensor):
        return solution
    return replace(solution, w=solution.w.numpy(), support=solution.support.numpy())


def _as_matrix(A: Any, w0: Any) -> tuple[GradientMatrix, Tensor]:
    try:
        rows, start = torch.as_tensor(A), torch.as_tensor(w0)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ChitaError(f"A and w0 must be arrays or tensors: {error}") from error
    if not (_is_plain(rows) and _is_plain(start)):
        raise ChitaError(
            f"A and w0 must be dense tensors with values, got A {_kind(rows)} and w0 {_kind(start)}"
        )
    if rows.ndim != 2 or start.shape != rows.shape[1:] or 0 in rows.shape:
        raise ChitaError(
            "A must be n x p and w0 of length p, got shapes "
            f"{tuple(rows.shape)} and {tuple(start.shape)}"
        )
    if rows.is_complex() or start.is_complex() or rows.device != start.device:
        raise ChitaError(
            "A and w0 must be real and on one device, got "
            f"{rows.dtype} on {rows.device} and {start.dtype} on {start.device}"
        )
    dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
    return HeldMatrix(rows.to(dtype).t()), start.to(dtype)


def _check(
    matrix: GradientMatrix, w0: Tensor, k: int, lam: float, alpha: float, method: str
) -> None:
    if not is_natural(k) or k > matrix.p:
        raise ChitaError(f"k must be an integer from 0 to p = {matrix.p}, got {k!r}")
    if not (is_finite(lam) and lam >= 0):
        raise ChitaError(f"lam must be a finite number of at least 0, got {lam!r}")
    if not is_finite(matrix.n * float(lam)):
        raise ChitaError(f"lam times n = {matrix.n} must be finite, got lam={lam!r}")
    if not is_finite(alpha):
        raise ChitaError(f"alpha must be a finite number, got {alpha!r}")
    if not is_one_of(method, get_args(Solver)):
        raise ChitaError(f"method must be one of {get_args(Solver)}, got {method!r}")
    if not bool(w0.isfinite().all()):
        raise ChitaError("w0 holds NaN or infinite values")
    if not math.isfinite(matrix.largest_entry()):
        raise ChitaError("A holds NaN or infinite values")


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor has its values in memory: not sparse, nested, quantized or meta."""
    special = tensor.is_meta or tensor.is_nested or tensor.is_quantized
    return tensor.layout == torch.strided and not special


def _kind(tensor: Tensor) -> str:
    kind = "nested" if tensor.is_nested else str(tensor.layout)
    return f"{tensor.dtype}, {kind}, on {tensor.device}"


def _layout(p: int, layers: Sequence[int] | None, block_size: int | None) -> Layout:
    sizes = [p] if layers is None else list(layers) if isinstance(layers, Iterable) else []
    whole = all(map(is_count, sizes)) and sum(sizes) == p
    if not whole or not (block_size is None or is_count(block_size)):
        raise ChitaError(
            f"block_size must be an integer of at least 1 and layers must add up to p = {p}, "
            f"got block_size={block_size!r} and layers={layers!r}"
        )
    return Layout(tuple(sizes), block_size)
