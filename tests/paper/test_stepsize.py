import pytest
import torch

from chita.paper.cells import Record
from chita.paper.stepsize import curve, random_problem
from chita.solver.constraints.constraint import hard_threshold
from chita.solver.stepsize import WITHIN


@pytest.fixture(scope="module")
def found() -> Record:
    return curve(random_problem(3), k=10, points=400)


def test_the_curve_is_the_objective_of_thresholded_steps(found: Record) -> None:
    problem = random_problem(3)
    A = problem.matrix.whole().t()
    start = hard_threshold(problem.w0, 10)[0]
    d = start - problem.w0
    gradient = A.T @ (A @ d + 1) + 0.1 * d  # n lambda = 0.1
    for at in (0, 57, 399):
        d = hard_threshold(start - found["tau"][at] * gradient, 10)[0] - problem.w0
        truth = (A @ d + 1).square().sum() / 2 + 0.05 * d.square().sum()
        assert found["g"][at] == pytest.approx(float(truth), rel=1e-10)


def test_the_first_piece_ends_at_the_breaking_point(found: Record) -> None:
    first = [tau for tau, piece in zip(found["tau"], found["piece"], strict=True) if piece == 1]
    second = found["tau"][len(first)]
    assert first[-1] <= found["tau_c"] <= second
    assert found["piece"][-1] > 2


def test_the_step_is_that_of_algorithm_2(found: Record) -> None:
    if found["tau_m"] < found["tau_c"]:
        assert found["chosen"] == found["tau_m"]
    else:
        start = WITHIN * found["tau_c"]  # a hair before the support changes
        growth = torch.tensor(found["chosen"] / start).log() / torch.tensor(1.5).log()
        assert float(growth) == pytest.approx(round(float(growth)), abs=1e-5)
    assert found["g_chosen"] < found["g"][0]
