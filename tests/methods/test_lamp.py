"""LAMP: a brute-force score, no curvature, no update."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import chita
from chita.curvature import NoCurvature
from chita.methods.lamp import LAMP
from chita.solver.algorithm import Layout
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import solve_problem
from tests.support.pruning import digits, mlpnet, numbers, points, snapshot, tiny

LAYERS = (12, 5, 30)


def scores(layer: Tensor) -> list[float]:
    """w_i^2 over the sum of the squares that are no smaller; of two equal ones, the first leads."""
    squares = [float(w) ** 2 for w in layer.flatten()]
    return [
        square / sum(other for j, other in enumerate(squares) if (-other, j) <= (-square, i))
        if square
        else 0.0
        for i, square in enumerate(squares)
    ]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, sum(LAYERS)), st.booleans())
def test_the_largest_scores_stay_as_they_are(seed: int, k: int, ties: bool) -> None:
    w0 = numbers(sum(LAYERS), seed=seed)
    w0[:12] *= 1e-3  # a layer of another scale
    if ties:
        w0 = w0.mul(2).round()
    problem = Problem.build(HeldMatrix(w0.new_empty(len(w0), 0)), w0, lam=0.0, alpha=1.0)
    solution = solve_problem(problem, k, LAMP.algorithm, options=Options(), layout=Layout(LAYERS))
    brute = [score for layer in w0.split(LAYERS) for score in scores(layer)]
    kept, dropped = solution.support.tolist(), set(range(len(w0))) - set(solution.support.tolist())
    assert len(kept) == k
    if dropped:
        least, most = min(brute[i] for i in kept), max(brute[i] for i in dropped)
        assert least >= most * (1 - 1e-9)
    truth = torch.zeros_like(w0)
    truth[solution.support] = w0[solution.support]
    assert torch.equal(solution.w, truth)


def test_it_needs_no_curvature_and_no_layer_is_removed() -> None:
    assert LAMP.curvature is NoCurvature
    model = tiny()
    with torch.no_grad():
        model[2].weight.mul_(1e-4)
    before = snapshot(model)
    result = chita.prune(model, [], sparsity=0.95, method="lamp", progress=False)
    assert result.nonzeros == 3 and result.stages[-1].objective is None
    for name, mask in result.masks.items():
        assert bool(mask.any())
        assert torch.equal(model.get_parameter(name).detach(), before[name] * mask)


@pytest.mark.parametrize(
    "options",
    [
        {"sparsity": "2:4"},
        {"sparsity": 0.6, "pattern": "4x1"},
        {"sparsity": 0.9, "stages": 3},
        {"sparsity": 0.9, "at_most": {"fc3*": 0.5}},
        {"sparsity": 0.9, "allocation": "erk"},
    ],
    ids=str,
)
def test_patterns_stages_and_limits(options: dict[str, Any]) -> None:
    model: Any = mlpnet()
    result = chita.prune(model, [], method="lamp", strict=False, progress=False, **options)
    goal = 0.5 if options["sparsity"] == "2:4" else options["sparsity"]
    assert result.sparsity == pytest.approx(goal, abs=2e-3)
    if options["sparsity"] == "2:4":
        assert result.groups is not None and set(result.groups) == {2}
    if "at_most" in options:
        assert {row.name: row.sparsity for row in result.layers}["fc3.weight"] <= 0.5


def test_recovery_and_floors_are_those_of_other_methods() -> None:
    """Any method recovers, and only auto has a floor."""
    arguments: dict[str, Any] = {"method": "lamp", "progress": False}
    result = chita.prune(
        mlpnet(), digits(600), sparsity=0.98, recover=True, budget="60 steps", stages=3, **arguments
    )
    assert result.training_steps >= 60 and result.sparsity == pytest.approx(0.98, abs=1e-3)
    with pytest.raises(chita.ChitaError, match="method='lamp'"):
        chita.prune(tiny(), [points(24)], sparsity=0.9, min_accuracy=50, **arguments)
