import pytest
import torch
from torch import Tensor

from chita.solver.coordinate_descent import BLOCK, CoordinateDescent, coordinate_descent
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.problem import Iterate, Problem
from tests.solver.problems import dense_minimiser, dense_objective, random_problem


def scalar_sweep(problem: Problem, x: Iterate) -> Tensor:
    """Coordinate descent as it is defined: one weight after the other."""
    A, w = problem.matrix.whole().t(), x.w.clone()
    rho = A @ (w - problem.w0) + problem.offset
    for i in x.support.tolist():
        gradient = A[:, i] @ rho + problem.mu * (w[i] - problem.w0[i])
        curvature = A[:, i] @ A[:, i] + problem.mu
        if curvature > 0:
            w[i] -= gradient / curvature
            rho -= gradient / curvature * A[:, i]
    return w


@pytest.mark.parametrize("k", [1, 7, BLOCK, 2 * BLOCK + 3])
@pytest.mark.parametrize("lam", [0.0, 0.05])
def test_a_sweep_equals_the_scalar_loop(k: int, lam: float) -> None:
    problem = random_problem(k, n=40, p=300, lam=lam)
    x = problem.start(k)
    descent = CoordinateDescent(problem, x.support)
    for _ in range(3):
        expected = scalar_sweep(problem, x)
        x = descent.sweep(x)
        torch.testing.assert_close(x.w, expected, rtol=1e-12, atol=1e-12)
        assert x.objective == pytest.approx(dense_objective(problem, x.w), rel=1e-12)


def test_zero_and_duplicate_columns_without_ridge() -> None:
    problem = random_problem(1, n=10, p=20, lam=0.0)
    stored = problem.matrix.whole()
    x = problem.start(8)
    zero, first, second = x.support[[1, 3, 4]].tolist()
    stored[zero] = 0.0
    stored[second] = stored[first]
    x = problem.at(x.w, x.support)
    swept = CoordinateDescent(problem, x.support).sweep(x)
    torch.testing.assert_close(swept.w, scalar_sweep(problem, x), rtol=1e-12, atol=1e-12)
    assert swept.w[zero] == problem.w0[zero]
    assert swept.objective < x.objective


def test_all_columns_zero_without_ridge_stay_put() -> None:
    w0 = torch.arange(1.0, 7.0)
    problem = Problem.build(HeldMatrix(torch.zeros(6, 4)), w0, lam=0.0, alpha=1.0)
    x = problem.start(3)
    assert torch.equal(CoordinateDescent(problem, x.support).sweep(x).w, x.w)


def test_sweeps_reach_the_minimiser_and_stop_there() -> None:
    problem = random_problem(2, n=20, p=30, lam=0.1)
    x = problem.start(6)
    points = coordinate_descent(problem, x, sweeps=500, tol=1e-14)
    assert len(points) < 500
    torch.testing.assert_close(points[-1].w, dense_minimiser(problem, x.support), atol=1e-5, rtol=0)
    objectives = [x.objective, *(point.objective for point in points)]
    assert objectives == sorted(objectives, reverse=True)


def test_no_more_sweeps_than_asked() -> None:
    problem = random_problem(2, n=20, p=30)
    assert len(coordinate_descent(problem, problem.start(6), sweeps=3, tol=0.0)) == 3
    assert coordinate_descent(problem, problem.start(6), sweeps=0, tol=0.0) == []
