import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.solver.backsolve import backsolve, damped_solve
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.problem import Problem
from tests.solver.problems import dense_minimiser, dense_objective, random_problem


@given(st.integers(0, 10**6), st.integers(0, 30), st.sampled_from([1e-6, 1e-3, 1.0, 100.0]))
@settings(deadline=None)
def test_is_the_minimiser_on_its_support(seed: int, k: int, lam: float) -> None:
    problem = random_problem(seed, n=10, p=30, lam=lam)  # k x k and n x n systems
    x = problem.start(k)
    solved = backsolve(problem, x)
    expected = dense_minimiser(problem, x.support)
    torch.testing.assert_close(solved.point.w, expected, rtol=1e-6, atol=1e-6)
    best = dense_objective(problem, expected)
    assert solved.point.objective == pytest.approx(best, rel=1e-8, abs=1e-12)
    assert solved.jitter == 0.0
    fresh = problem.at(solved.point.w, solved.point.support)
    torch.testing.assert_close(solved.point.rho, fresh.rho, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("k", [6, 20])
def test_from_a_transposed_view(k: int) -> None:
    problem = random_problem(0, n=10, p=40)
    view = HeldMatrix(problem.matrix.whole().t().contiguous().t())
    x = problem.start(k)
    seen = backsolve(Problem(view, problem.w0, problem.mu, problem.offset), x)
    torch.testing.assert_close(seen.point.w, backsolve(problem, x).point.w)
    assert torch.equal(seen.point.support, x.support)


@pytest.mark.parametrize("k", [6, 20])
def test_duplicate_and_zero_columns_without_ridge(k: int, caplog: pytest.LogCaptureFixture) -> None:
    problem = random_problem(4, n=10, p=40, lam=0.0)
    x = problem.start(k)
    stored = problem.matrix.whole()
    stored[x.support[0]] = 0.0
    stored[x.support[1:]] = stored[x.support[1]].clone()
    x = problem.at(x.w, x.support)
    with caplog.at_level(logging.WARNING):
        solved = backsolve(problem, x)
    assert solved.jitter > 0
    assert "singular" in caplog.text
    assert bool(solved.point.w.isfinite().all())
    best = dense_objective(problem, dense_minimiser(problem, x.support))
    assert solved.point.objective == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("k", [30, 400])
@pytest.mark.parametrize("lam", [1e-5, 1e-6, 1e-7, 1e-8])
def test_float32_with_badly_scaled_rows_is_as_good_as_float64(lam: float, k: int) -> None:
    problem = random_problem(5, n=50, p=600, lam=lam, dtype=torch.float32)
    problem.matrix.whole().mul_(torch.logspace(-3, 1, 50))
    x = problem.start(k)
    solved = backsolve(problem, x)
    start = dense_objective(problem, x.w)
    best = dense_objective(problem, dense_minimiser(problem, x.support))
    reached = dense_objective(problem, solved.point.w)
    # The weights are float32: their own rounding moves the residual by |A_S| eps |w|.
    spacing = torch.finfo(torch.float32).eps * float(solved.point.w.norm())
    rounding = float(torch.linalg.matrix_norm(problem.matrix.whole().double(), 2)) * spacing
    assert reached <= best * (1 + 1e-3) + rounding**2
    assert reached < start


def test_a_solved_support_stays_solved() -> None:
    problem = random_problem(6, dtype=torch.float32)
    once = backsolve(problem, problem.start(8)).point
    twice = backsolve(problem, once).point
    assert twice.objective <= once.objective
    torch.testing.assert_close(twice.w, once.w)


def test_overflow_is_an_error() -> None:
    problem = random_problem(7)
    problem.matrix.whole().fill_(1e200)
    with pytest.raises(ChitaError, match="too large"):
        backsolve(problem, problem.start(14))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_damped_solve_is_the_inverse_of_each() -> None:
    x, rhs = random(4, 9, 5), random(4, 5, seed=1)
    solved, jitter = damped_solve(x.mT @ x, 0.3, rhs)
    damped = x.mT @ x + 0.3 * torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(solved, torch.linalg.solve(damped, rhs))
    assert jitter.tolist() == [0.0] * 4


def test_jitter_goes_to_singular_systems_alone() -> None:
    x = random(3, 9, 5)
    x[1, :, 4] = x[1, :, 3]
    systems, rhs = x.mT @ x, random(3, 5, seed=1)
    systems[1, 4] = systems[1, 3]
    systems[1, :, 4] = systems[1, :, 3]
    systems[1, 4, 4] *= 1 - 1e-12  # below singular
    before = systems.clone()
    solved, jitter = damped_solve(systems, 0.0, rhs)
    assert torch.equal(systems, before)
    assert jitter[0] == jitter[2] == 0
    assert 0 < float(jitter[1]) < 1e-6 * float(systems[1].diagonal().max())
    for row in (0, 2):
        torch.testing.assert_close(solved[row], torch.linalg.solve(systems[row], rhs[row]))
    raised = systems[1] + jitter[1] * torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(raised @ solved[1], rhs[1], rtol=1e-3, atol=1e-3)


def test_a_system_of_zeros_survives_and_one_of_infinities_is_told() -> None:
    zeros, rhs = torch.zeros(2, 3, 3, dtype=torch.float64), random(2, 3)
    assert bool(damped_solve(zeros, 0.0, rhs)[0].isfinite().all())
    zeros[1].fill_(torch.inf)
    with pytest.raises(ChitaError, match="finite"):
        damped_solve(zeros, 0.0, rhs)
