"""The algorithm for a network from one for a layer."""

from __future__ import annotations

import torch

from chita.curvature.source import no_rows
from chita.solver.algorithm import Layout
from chita.solver.layer_wise.each_layer import EachLayer, PrunedLayer
from chita.solver.layer_wise.layer import Layer
from chita.solver.options import Options, Trace
from chita.solver.problem import Problem
from tests.solver.layer_wise.layers import correlated_moment, normal


def test_the_largest_jitter_and_a_layer_that_is_not_solved_are_reported() -> None:
    reports = iter([(0.5, True), (0.25, False)])

    def prune(layer: Layer, options: Options) -> PrunedLayer:
        mask = layer.pick(layer.w0)
        return PrunedLayer(2 * layer.w0, mask, *next(reports))

    moments = (correlated_moment(0, 6), correlated_moment(1, 4))
    w0 = normal(7, 44)
    problem = Problem.build(no_rows(w0), w0, lam=0.01, alpha=0.0, moments=moments)
    trace = Trace(0)
    point, converged = EachLayer(prune).run(problem, 22, Layout((24, 20)), Options(), trace)
    assert trace.jitter == 0.5 and not converged
    assert len(point.support) == 22
    torch.testing.assert_close(point.w[point.support], 2 * w0[point.support])
