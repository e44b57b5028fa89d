"""Magnitude pruning: no curvature, no update."""

from __future__ import annotations

import pytest
import torch

import chita
from chita.curvature import NoCurvature
from chita.methods.magnitude import MAGNITUDE, MAGNITUDE_UNIFORM
from chita.solver.algorithm import Layout
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import solve_problem
from tests.support.pruning import points, same, snapshot, tiny


def problem() -> Problem:
    w0 = torch.tensor([0.3, -2.0, 0.1, 1.0, -0.2])
    return Problem.build(HeldMatrix(torch.empty(5, 0)), w0, lam=0.0, alpha=1.0)


def test_the_largest_weights_stay_as_they_are() -> None:
    solution = solve_problem(problem(), 2, MAGNITUDE.algorithm, options=Options())
    assert solution.w.tolist() == [0.0, -2.0, 0.0, 1.0, 0.0]
    assert solution.support.tolist() == [1, 3]
    assert MAGNITUDE.curvature is NoCurvature


def test_the_largest_of_each_layer() -> None:
    algorithm, layout = MAGNITUDE_UNIFORM.algorithm, Layout((1, 2, 2))
    solution = solve_problem(problem(), 3, algorithm, options=Options(), layout=layout)
    assert solution.support.tolist() == [0, 1, 3]
    assert solution.w.tolist() == pytest.approx([0.3, -2.0, 0.0, 1.0, 0.0])
    assert MAGNITUDE_UNIFORM.curvature is NoCurvature


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("ridge", ["auto", 1e-3])
@pytest.mark.parametrize("sparsity", [0.25, 0.5, 0.9])
def test_every_layer_of_a_network_loses_its_share(
    sparsity: float, ridge: str | float, stages: int
) -> None:
    model = tiny()
    before = snapshot(model)
    result = chita.prune(
        model,
        [points(24)],
        sparsity=sparsity,
        method="magnitude-uniform",
        stages=stages,
        ridge=ridge,  # type: ignore[arg-type]
        progress=False,
    )
    assert result.nonzeros == int((1 - sparsity) * 72 + 1e-6)
    for name, mask in result.masks.items():
        old, new = before[name], model.get_parameter(name).detach()
        assert torch.equal(new, old * mask) and bool(new[mask].all())
        assert abs(int(mask.sum()) - (1 - sparsity) * mask.numel()) <= 1
        assert bool(old[mask].abs().min() > old[~mask].abs().max())
    assert result.stages[-1].objective is None and result.stages[-1].ridge is None


@pytest.mark.parametrize("method", ["magnitude", "magnitude-uniform"])
def test_options_of_the_optimiser_change_nothing(method: str) -> None:
    first, second = tiny(), tiny()
    chita.prune(first, [], sparsity=0.5, method=method, progress=False, recover=False)
    chita.prune(
        second,
        [],
        sparsity=0.5,
        method=method,
        continuation=5,
        iterations=3,
        progress=False,
        recover=False,
    )
    assert same(snapshot(first), snapshot(second))
