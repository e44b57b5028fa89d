"""Solvers for one layer: ADMM, and the paper's algorithm 3."""

from __future__ import annotations

from torch import Tensor

from chita.solver.iht_active_set import iht_cycles
from chita.solver.layer_wise.admm import admm
from chita.solver.layer_wise.backsolve import backsolve, minimise
from chita.solver.layer_wise.coordinate_descent import sweep
from chita.solver.layer_wise.each_layer import PrunedLayer
from chita.solver.layer_wise.exchange import exchange
from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.matrix import LayerMatrix
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem

STEPS = 15  # steps of conjugate gradients before the exchanges, which need no exact minimiser


def solve_by_admm(layer: Layer, options: Options) -> PrunedLayer:
    """Find a support by ADMM, and solve on it exactly.

    If gradients couple the rows, exchanges of single weights improve the support.

    Args:
        layer: the layer.
        options: not used.

    Returns:
        The weights in float64, and the support.
    """
    w, mask = admm(layer)
    if layer.gradients is not None:  # otherwise they find almost nothing
        w, mask = exchange(layer, minimise(layer, mask, w, STEPS), mask)
    return _exact(layer, mask, w)


def solve_by_iht(layer: Layer, options: Options) -> PrunedLayer:
    """Run algorithm 3, IHT with the paper's step size and coordinate descent; then solve exactly.

    The start is P_k(w0) in the metric of the inputs: the weights with the largest |w_j| |x_j|.

    Args:
        layer: the layer.
        options: the options of the paper's algorithms.

    Returns:
        The weights in float64, and the support.
    """
    matrix = LayerMatrix(layer)

    def descend(problem: Problem, x: Iterate, options: Options, trace: Trace) -> Iterate:
        w, mask = matrix.weights(x.w), matrix.mask(x.support)
        for _ in range(options.t_cd):
            w = sweep(layer, w, mask)
        point = problem.at(matrix.scaled(w), x.support)
        trace.history.append(point.objective)
        return point if point.objective < x.objective else x

    problem = matrix.problem(layer)
    x, _ = iht_cycles(problem, problem.start(layer.k), options, descend, Trace(options.iterations))
    mask = matrix.mask(x.support)
    return _exact(layer, mask, matrix.weights(x.w))


def _exact(layer: Layer, mask: Tensor, start: Tensor) -> PrunedLayer:
    """Return the exact minimiser on a support."""
    found = backsolve(layer, mask, start)
    return PrunedLayer(found.w, mask, found.jitter, found.converged)
