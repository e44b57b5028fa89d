"""Magnitude pruning: no curvature, no update."""

from __future__ import annotations

import torch

from chita.l0.options import Options
from chita.l0.problem import Problem
from chita.l0.solve import solve_problem
from chita.matrix import GradientMatrix
from chita.methods.magnitude import MAGNITUDE


def test_the_largest_weights_stay_as_they_are() -> None:
    w0 = torch.tensor([0.3, -2.0, 0.1, 1.0, -0.2])
    problem = Problem.build(GradientMatrix(torch.empty(5, 0)), w0, lam=0.0, alpha=1.0)
    solution = solve_problem(problem, 2, MAGNITUDE.algorithm, options=Options())
    assert solution.w.tolist() == [0.0, -2.0, 0.0, 1.0, 0.0]
    assert solution.support.tolist() == [1, 3]
    assert MAGNITUDE.curvature == "none"
