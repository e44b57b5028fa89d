import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.solver.constraints.constraint import top_k
from chita.solver.iht_active_set import (
    active_set,
    iht_cycles,
    no_refinement,
    refine_by_backsolve,
    refine_by_descent,
    step_outside,
)
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options, Trace
from chita.solver.problem import Problem
from tests.solver.problems import dense_objective, random_problem

REFINEMENTS = [no_refinement, refine_by_descent, refine_by_backsolve]


@given(st.integers(0, 10**6), st.sampled_from(REFINEMENTS))
@settings(deadline=None)
def test_the_objective_never_rises(seed, refine) -> None:  # type: ignore[no-untyped-def]
    problem = random_problem(seed, n=20, p=60)
    x = problem.start(8)
    trace = Trace(40, [x.objective])
    reached, _ = active_set(problem, x, Options(active=1.5), refine, trace)
    for earlier, later in zip(trace.history, trace.history[1:], strict=False):
        assert later <= earlier * (1 + 1e-12)
    assert reached.objective == pytest.approx(dense_objective(problem, reached.w), rel=1e-9)
    assert len(reached.support) == 8
    assert set(reached.w.nonzero().squeeze(1).tolist()) <= set(reached.support.tolist())


@pytest.mark.parametrize("active", [0, 4.0, 100.0])
@pytest.mark.parametrize("refine", REFINEMENTS)
def test_an_active_set_of_everything_is_the_plain_run(active, refine) -> None:  # type: ignore[no-untyped-def]
    problem = random_problem(3, n=20, p=32)
    x, options = problem.start(8), Options(active=active)
    one, _ = active_set(problem, x, options, refine, Trace(50))
    other, _ = iht_cycles(problem, x, options, refine, Trace(50))
    assert torch.equal(one.w, other.w)


def hidden_weight() -> Problem:
    """Weights of which the smallest alone explains the residual: magnitude never looks at it."""
    stored = torch.zeros(20, 5, dtype=torch.float64)
    stored[:, 0] = 0.01
    stored[19, 1:] = 1.0
    w0 = torch.linspace(1.0, 0.001, 20, dtype=torch.float64)
    return Problem.build(HeldMatrix(stored), w0, lam=0.1, alpha=1.0)


def test_leaves_the_initial_active_set_when_that_pays() -> None:
    problem = hidden_weight()
    x, options = problem.start(4), Options(active=2.0)
    assert 19 not in top_k(problem.w0, 8)
    reached, converged = active_set(problem, x, options, refine_by_backsolve, Trace(100))
    assert 19 in reached.support
    assert converged
    first = torch.arange(8)
    confined = problem.restrict(first, HeldMatrix(problem.matrix.read(0, 8)), x)
    best, _ = iht_cycles(confined, problem.drop(first, x), options, refine_by_backsolve, Trace(100))
    assert reached.objective < 0.6 * best.objective


def test_step_outside_is_none_where_nothing_outside_pays() -> None:
    problem = hidden_weight()
    x = problem.start(4)
    outside = step_outside(problem, x, torch.arange(8), 1.5)
    assert outside is not None
    assert outside.objective < x.objective
    assert 19 in outside.support
    assert step_outside(problem, x, torch.arange(20), 1.5) is None


def test_a_spent_budget_stops_it() -> None:
    problem = random_problem(3, n=20, p=60)
    trace = Trace(2)
    _, converged = active_set(problem, problem.start(8), Options(tol=0.0), no_refinement, trace)
    assert trace.iterations == 2
    assert not converged
