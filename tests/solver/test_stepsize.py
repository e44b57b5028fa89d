from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.solver.constraints.constraint import top_k
from chita.solver.problem import Iterate, Problem
from chita.solver.stepsize import Path, backtracking_step, grow, lipschitz_step, paper_step
from tests.solver.problems import dense_gradient, dense_objective, random_problem, sparse_point

K = 5


def start(seed: int, *, nonzeros: int = K) -> tuple[Problem, Iterate]:
    """A problem and a random point of its, with k places and perhaps fewer non-zeros."""
    problem = random_problem(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    support = torch.randperm(problem.matrix.p, generator=generator)[:K].sort().values
    values = torch.randn(K, generator=generator, dtype=torch.float64)
    values[nonzeros:] = 0.0
    return problem, sparse_point(problem, support, values)


def support_at(problem: Problem, x: Iterate, tau: float) -> Tensor:
    return top_k(x.w - tau * dense_gradient(problem, x.w), K)


def breaking_point_by_bisection(problem: Problem, x: Iterate) -> float:
    """Where the support of P_k(w - tau g) first differs from that near 0."""
    near_zero = support_at(problem, x, 1e-9)
    taus = torch.logspace(-9, 6, 600, dtype=torch.float64).tolist()
    same = [torch.equal(support_at(problem, x, tau), near_zero) for tau in taus]
    if all(same):
        return float("inf")
    first = same.index(False)
    low, high = taus[first - 1], taus[first]
    for _ in range(60):
        middle = (low + high) / 2
        stays = torch.equal(support_at(problem, x, middle), near_zero)
        low, high = (middle, high) if stays else (low, middle)
    return low


@given(st.integers(0, 10**6), st.integers(0, K))
@settings(deadline=None)
def test_first_breaking_point_is_the_one_found_by_bisection(seed: int, nonzeros: int) -> None:
    problem, x = start(seed, nonzeros=nonzeros)
    found = breaking_point_by_bisection(problem, x)
    assume(found > 1e-8)
    closed_form = Path(problem, x, K).first_breaking_point()
    assert closed_form == pytest.approx(found, rel=1e-6)


@given(st.integers(0, 10**6), st.integers(1, K))
@settings(deadline=None)
def test_first_piece_optimum_minimises_q_along_the_gradient_on_the_support(
    seed: int, nonzeros: int
) -> None:
    problem, x = start(seed, nonzeros=nonzeros)
    near_zero = support_at(problem, x, 1e-12)
    direction = torch.zeros_like(x.w)
    direction[near_zero] = dense_gradient(problem, x.w)[near_zero]
    tau_m = Path(problem, x, K).first_piece_optimum()
    values = [dense_objective(problem, x.w - f * tau_m * direction) for f in (0.999, 1.0, 1.001)]
    assert values[1] < values[0]
    assert values[1] < values[2]


@given(st.integers(0, 10**6), st.floats(1e-4, 10), st.integers(0, K))
@settings(deadline=None)
def test_a_point_of_the_path_carries_its_own_residual(seed: int, tau: float, nonzeros: int) -> None:
    problem, x = start(seed, nonzeros=nonzeros)
    point = Path(problem, x, K).at(tau)
    assert torch.equal(point.support, support_at(problem, x, tau))
    assert int((point.w != 0).sum()) <= K
    fresh = problem.at(point.w, point.support)
    torch.testing.assert_close(point.rho, fresh.rho, rtol=1e-10, atol=1e-9)
    assert point.objective == pytest.approx(dense_objective(problem, point.w), rel=1e-9)


@given(st.integers(0, 10**6), st.integers(0, K))
@settings(deadline=None)
def test_every_rule_lowers_q(seed: int, nonzeros: int) -> None:
    problem, x = start(seed, nonzeros=nonzeros)
    path = Path(problem, x, K)
    for rule in (paper_step(1.5), backtracking_step, lipschitz_step(problem)):
        assert rule(path).objective < x.objective


def test_growth_stops_at_the_last_point_before_q_rises() -> None:
    problem, x = start(3)
    path = Path(problem, x, K)
    tau = path.first_breaking_point() / 100
    values = [path.at(tau * 1.5**i).objective for i in range(60)]
    last = next(i for i in range(60) if values[i + 1] >= values[i])
    assert grow(path, tau, 1.5).objective == pytest.approx(values[last], rel=1e-12)


def test_lipschitz_step_is_one_over_the_largest_eigenvalue() -> None:
    problem, x = start(0)
    # The power iteration needs a gap between the first two singular values.
    problem.matrix.whole()[:, 0] += 3.0
    x = problem.at(x.w, x.support)
    L = problem.mu + float(torch.linalg.svdvals(problem.matrix.whole())[0] ** 2)
    path = Path(problem, x, K)
    torch.testing.assert_close(
        lipschitz_step(problem)(path).w, path.at(1 / L).w, rtol=1e-6, atol=1e-8
    )


def test_nothing_moves_where_there_is_nothing_to_gain() -> None:
    problem = random_problem(0, lam=0.0, alpha=0.0)
    still = replace(problem, w0=torch.zeros_like(problem.w0))
    x = still.start(K)
    for rule in (paper_step(1.5), backtracking_step, lipschitz_step(still)):
        assert rule(Path(still, x, K)).objective == 0.0
