from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.solver.iht_active_set import (
    iht,
    iht_cycles,
    no_refinement,
    refine_by_backsolve,
    refine_by_descent,
    step_rule,
)
from chita.solver.options import Options, Step, Trace
from chita.solver.solve import solve
from tests.solver.problems import brute_force, dense_objective, random_problem

REFINEMENTS = [no_refinement, refine_by_descent, refine_by_backsolve]


@given(st.integers(0, 10**6), st.sampled_from(REFINEMENTS), st.sampled_from(get_args(Step)))
@settings(deadline=None)
def test_the_objective_never_rises(seed, refine, step) -> None:  # type: ignore[no-untyped-def]
    problem = random_problem(seed)
    x = problem.start(5)
    trace = Trace(30, [x.objective])
    reached, _ = iht_cycles(problem, x, Options(step=step), refine, trace)
    assert trace.history == sorted(trace.history, reverse=True)
    assert reached.objective == trace.history[-1] <= x.objective
    assert reached.objective == pytest.approx(dense_objective(problem, reached.w), rel=1e-9)
    assert len(reached.support) == 5
    assert set(reached.w.nonzero().squeeze(1).tolist()) <= set(reached.support.tolist())


def test_iterations_are_spent_and_said_to_be() -> None:
    problem = random_problem(0, n=30, p=100)
    x = problem.start(20)
    trace = Trace(7, [x.objective])
    _, settled = iht_cycles(problem, x, Options(tol=0.0), no_refinement, trace)
    assert trace.iterations == 7
    assert not settled
    trace = Trace(0, [x.objective])
    reached, settled = iht_cycles(problem, x, Options(), no_refinement, trace)
    assert reached is x
    assert not settled


def test_a_cycle_has_t_ht_updates() -> None:
    problem = random_problem(0, n=30, p=100)
    x = problem.start(20)
    trace = Trace(50, [x.objective])
    iht(problem, x, 4, step=step_rule(problem, Options()), tol=0.0, trace=trace)
    assert trace.iterations == 4
    assert len(trace.history) == 5


def test_settles_at_a_fixed_point_of_the_update() -> None:
    problem = random_problem(1, lam=0.5)
    trace = Trace(2000)
    reached, settled = iht_cycles(
        problem, problem.start(5), Options(tol=1e-13), no_refinement, trace
    )
    assert settled
    gradient = problem.gradient(reached)[reached.support]
    assert float(gradient.abs().max()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("method", "inner"), [("bso", "cd"), ("cd", "cd"), ("cd", "bso")])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize(("n", "lam"), [(20, 1e-3), (20, 0.01), (25, 0.05), (30, 0.1)])
def test_close_to_the_brute_force_optimum(method, inner, alpha, n, lam) -> None:  # type: ignore[no-untyped-def]
    ratios = []
    for seed in range(200):
        problem = random_problem(seed, n=n, p=12, lam=lam, alpha=alpha)
        solution = solve(
            problem.matrix.whole().t(),
            problem.w0,
            4,
            lam=lam,
            alpha=alpha,
            method=method,
            inner=inner,
        )
        ratios.append(solution.objective / brute_force(problem, 4))
    assert min(ratios) > 1 - 1e-4  # else the truth is wrong
    assert np.median(ratios) <= 1.1


def test_magnitude_alone_is_far_from_the_optimum() -> None:
    """What the test above shows is the optimiser's doing."""
    ratios = []
    for seed in range(50):
        problem = random_problem(seed, n=20, p=12, lam=0.01)
        ratios.append(problem.start(4).objective / brute_force(problem, 4))
    assert np.median(ratios) > 1.5


def test_refinements_record_what_they_did() -> None:
    problem = random_problem(2, lam=0.0)
    problem.matrix.whole()[:] = 1.0
    x = problem.start(5)
    trace = Trace(10, [x.objective])
    refine_by_backsolve(problem, x, Options(), trace)
    assert trace.jitter > 0
    assert len(trace.history) == 2
    assert torch.equal(no_refinement(problem, x, Options(), trace).w, x.w)
