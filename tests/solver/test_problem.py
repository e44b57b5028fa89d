import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.solver.problems import dense_gradient, dense_objective, random_problem


@given(st.integers(0, 10**6), st.integers(0, 16), st.sampled_from([0.0, 1.0]))
@settings(deadline=None)
def test_objective_and_gradient_are_those_of_the_definition(
    seed: int, k: int, alpha: float
) -> None:
    problem = random_problem(seed, alpha=alpha)
    x = problem.start(k)
    assert x.objective == pytest.approx(dense_objective(problem, x.w), rel=1e-12)
    torch.testing.assert_close(problem.gradient(x), dense_gradient(problem, x.w))


def test_a_restriction_has_the_same_objective_and_gradient() -> None:
    problem = random_problem(0)
    x = problem.start(5)
    index = torch.unique(torch.cat([x.support, torch.tensor([0, 3, 15])]))
    part, y = problem.restrict(index, problem.matrix.columns(index), x), problem.drop(index, x)
    fresh = part.at(y.w, y.support)
    assert fresh.objective == pytest.approx(x.objective, rel=1e-12)
    torch.testing.assert_close(fresh.rho, x.rho)
    torch.testing.assert_close(part.gradient(fresh), problem.gradient(x)[index])
    lifted = problem.lift(index, y)
    assert torch.equal(lifted.w, x.w)
    assert torch.equal(lifted.support, x.support)
