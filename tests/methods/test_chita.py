"""What sets the two single-stage methods and CHITA++ apart: their updates."""

from __future__ import annotations

import pytest
import torch

from chita.methods import METHODS, get_method
from chita.solver.solve import solve_problem
from tests.solver.problems import brute_force, dense_gradient, dense_minimiser, random_problem


@pytest.mark.parametrize("seed", range(5))
def test_chita_bso_is_exact_on_its_support(seed: int) -> None:
    problem, method = random_problem(seed), METHODS["chita-bso"]
    solution = solve_problem(problem, 6, method.algorithm, options=method.options)
    torch.testing.assert_close(solution.w, dense_minimiser(problem, solution.support))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["chita-bso", "chita-cd"])
def test_both_come_close_to_the_optimum_from_a_start_far_above(name: str, seed: int) -> None:
    problem, method = random_problem(seed, p=12), METHODS[name]
    start = problem.start(4).objective
    solution = solve_problem(problem, 4, method.algorithm, options=method.options)
    optimum = brute_force(problem, 4)
    assert optimum <= solution.objective * (1 + 1e-9)
    assert solution.objective - optimum < 0.5 * (start - optimum)


def test_chita_cd_descends_to_the_minimum_on_its_support() -> None:
    problem, method = random_problem(0), METHODS["chita-cd"]
    solution = solve_problem(problem, 6, method.algorithm, options=method.options)
    at_start = dense_gradient(problem, problem.start(6).w)[solution.support].norm()
    assert dense_gradient(problem, solution.w)[solution.support].norm() < 0.05 * at_start


def test_a_stage_of_chita_plus_plus_takes_few_updates() -> None:
    for solver in ("bso", "cd"):
        assert get_method("chita++", solver).options.iterations == 5
