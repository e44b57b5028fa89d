"""Continuation: small supports by way of larger ones."""

from __future__ import annotations

import pytest
import torch

import chita
from chita.curvature.fisher import gradient_matrix
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.iht_active_set import shrink_support
from chita.solver.problem import Problem
from tests.solver.problems import brute_force, dense_minimiser, dense_objective, random_problem
from tests.support.pruning import digits, mlpnet


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("steps", [1, 3, 10])
def test_never_above_where_it_starts(seed: int, steps: int) -> None:
    problem = random_problem(seed)
    start = problem.start(3)
    found = shrink_support(problem, start, steps)
    assert found.objective <= start.objective
    assert len(found.support) == 3
    assert found.w.count_nonzero() <= 3
    assert found.objective == pytest.approx(dense_objective(problem, found.w))


@pytest.mark.parametrize("seed", range(10))
def test_what_it_finds_is_the_minimiser_on_its_support(seed: int) -> None:
    problem = random_problem(seed)
    found = shrink_support(problem, problem.start(4), 5)
    torch.testing.assert_close(found.w, dense_minimiser(problem, found.support))


def test_a_better_start_is_kept() -> None:
    problem = random_problem(0, p=12)
    supports = torch.combinations(torch.arange(12), 3)
    points = [problem.at(dense_minimiser(problem, support), support) for support in supports]
    best = min(points, key=lambda point: point.objective)
    assert best.objective == pytest.approx(brute_force(problem, 3))
    found = shrink_support(problem, best, 4)
    assert found.objective == pytest.approx(best.objective)
    assert torch.equal(found.support, best.support)


@pytest.mark.parametrize(("k", "steps"), [(0, 5), (3, 0), (8, 5), (12, 5), (16, 5)])
def test_nothing_to_shrink(k: int, steps: int) -> None:
    problem = random_problem(0)  # p = 16: the way begins at 8 weights
    start = problem.start(k)
    assert shrink_support(problem, start, steps) is start


def test_the_trained_network_profits_at_high_sparsity() -> None:
    model = mlpnet()
    weights = Weights(model)
    matrix = gradient_matrix(model, weights, SampleStream(digits(1600)), rows=100, batch=16).matrix
    problem = Problem.build(matrix, weights.vector(), lam=1e-3, alpha=1 / 16)
    start = problem.start(647)
    assert shrink_support(problem, start, 20).objective < 0.95 * start.objective
    A, w0 = matrix.whole().t(), weights.vector()
    without, with_it = (
        chita.solve(A, w0, 647, lam=1e-3, alpha=1 / 16, continuation=steps) for steps in (0, 20)
    )
    assert with_it.objective < without.objective
    assert with_it.history == sorted(with_it.history, reverse=True)
