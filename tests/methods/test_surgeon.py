"""The surgeon: statistic, support and update against dense algebra."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.methods.m_fac import RowByRow, matrix_free
from chita.methods.obd import diagonal
from chita.methods.surgeon import Surgeon
from chita.methods.surgeon_inverse import Invert
from chita.methods.woodfisher import Woodbury
from chita.solver.algorithm import Layout
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import Solution, solve_problem
from tests.methods.dense import dense_hessian, dense_inverse, dense_surgeon
from tests.solver.problems import dense_objective, random_problem
from tests.support.messages import says

INVERSES: dict[str, Invert] = {
    "woodbury": Woodbury(),
    "row by row": RowByRow,
    "matrix-free": matrix_free,
}


def operate(problem: Problem, k: int, surgeon: Surgeon, layout: Layout | None = None) -> Solution:
    return solve_problem(problem, k, surgeon, options=Options(), layout=layout)


@pytest.mark.parametrize("name", INVERSES)
@pytest.mark.parametrize("first_order", [False, True])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1), block_size=st.none() | st.integers(1, 20))
def test_support_and_update_equal_dense_algebra(
    name: str, first_order: bool, seed: int, share: float, block_size: int | None
) -> None:
    """With blocks, one ranking over all weights, and an inverse that is zero outside the blocks."""
    problem, layout = random_problem(seed, n=12, p=30), Layout((17, 13), block_size)
    k, inverse = round(30 * share), dense_inverse(problem, layout)
    w = problem.w0
    if first_order:
        w = w - inverse @ (problem.matrix.whole() @ problem.offset)
    solution = operate(problem, k, Surgeon(INVERSES[name], first_order), layout)
    expected, support = dense_surgeon(problem, k, inverse, w)
    assert torch.equal(solution.support, support)
    torch.testing.assert_close(solution.w, expected, rtol=1e-8, atol=1e-8)
    assert solution.objective == pytest.approx(dense_objective(problem, expected), rel=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_removing_one_weight_is_the_constrained_minimum(seed: int, alpha: float) -> None:
    """Of all weights to remove alone, and all moves of the others: the least Q there is."""
    problem = random_problem(seed, alpha=alpha)
    hessian = dense_hessian(problem)
    gradient = problem.matrix.whole() @ problem.offset
    best = (math.inf, problem.w0)
    for q in range(16):
        others = [j for j in range(16) if j != q]
        d = torch.zeros_like(problem.w0)
        d[q] = -problem.w0[q]
        rhs = -gradient[others] - hessian[others, q] * d[q]
        d[others] = torch.linalg.solve(hessian[others][:, others], rhs)
        best = min(best, (dense_objective(problem, problem.w0 + d), problem.w0 + d))
    solution = operate(problem, 15, Surgeon(matrix_free, first_order=True))
    assert solution.objective == pytest.approx(best[0], rel=1e-8)
    torch.testing.assert_close(solution.w, best[1], rtol=1e-8, atol=1e-8)


def test_equal_statistics_are_settled_as_by_top_k() -> None:
    problem = random_problem(0, n=4, p=6)
    problem.matrix.whole().copy_(problem.matrix.whole()[0].expand(6, 4))
    problem.w0.fill_(1.0)
    solution = operate(problem, 2, Surgeon(diagonal))
    assert solution.support.tolist() == [0, 1]


@pytest.mark.parametrize("lam", [0.0, 0.05])
def test_the_diagonal_fisher_ranks_by_w_squared_h_and_moves_nothing(lam: float) -> None:
    problem = random_problem(2, n=9, p=20, lam=lam)
    problem.matrix.whole()[[3, 4]] = 0.0
    problem.w0[3] = 100.0
    h = problem.matrix.whole().square().sum(1) / 9 + lam
    order = (problem.w0.square() * h / 2).argsort(descending=True)
    solution = operate(problem, 8, Surgeon(diagonal), Layout((20,), 6))
    assert torch.equal(solution.support, order[:8].sort().values)
    assert torch.equal(solution.w[solution.support], problem.w0[solution.support])
    assert int(solution.w.count_nonzero()) == 8


def test_cancellation_is_mended_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """[H^-1]_ii of weights that the samples pin down is what is left of 1 / mu after taking away
    nearly all of it: noise in float32, and below zero for some."""
    problem = random_problem(0, n=40, p=24, lam=1e-8, dtype=torch.float32)
    problem.matrix.whole().mul_(100.0)
    solution = operate(problem, 12, Surgeon(RowByRow))
    assert bool(solution.w.isfinite().all())
    assert len(solution.support) == 12
    assert says(caplog.text, "ridge")


def test_no_word_of_cancellation_where_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    problem = random_problem(0, n=10, p=60, lam=1e-2, dtype=torch.float32)
    problem.matrix.whole()[:5] = 0.0
    for invert in (*INVERSES.values(), diagonal):
        operate(problem, 12, Surgeon(invert))
    assert caplog.text == ""


def test_an_inverse_that_is_not_finite_is_not_passed_over_in_silence() -> None:
    problem = random_problem(0, n=10, p=16, dtype=torch.float32)
    problem.matrix.whole().mul_(1e20)
    solution = operate(problem, 8, Surgeon(Woodbury(at_once=4)))
    assert not math.isfinite(solution.objective)
    assert not bool(solution.w.isfinite().all())


def test_the_history_tells_where_it_started_even_if_it_ends_above() -> None:
    problem = random_problem(0, n=30, p=40)
    solution = operate(problem, 20, Surgeon(matrix_free), Layout((40,), 5))
    assert solution.history[0] == problem.start(20).objective
    assert solution.history[-1] == solution.objective
