"""The first-order term has no part in what is chosen, and all its part in what is reported."""

from __future__ import annotations

import torch

from chita.methods.surgeon import WithoutFirstOrder
from chita.solver.algorithm import Layout
from chita.solver.options import Options, Trace
from chita.solver.solve import ALGORITHMS, solve_problem
from tests.solver.problems import dense_objective, random_problem


def test_the_point_is_that_of_offset_zero() -> None:
    with_term, without = random_problem(0, alpha=1.0), random_problem(0, alpha=0.0)
    options = Options(iterations=7)
    for layout in (Layout((16,)), Layout((16,), block_size=5)):
        plain = solve_problem(without, 6, ALGORITHMS["bso"], options=options, layout=layout)
        wrapped = solve_problem(
            with_term, 6, WithoutFirstOrder(ALGORITHMS["bso"]), options=options, layout=layout
        )
        assert torch.equal(wrapped.w, plain.w)
        assert (wrapped.iterations, wrapped.converged) == (plain.iterations, plain.converged)
        assert abs(wrapped.objective - dense_objective(with_term, wrapped.w)) < 1e-9


def test_the_record_tells_of_the_problem_itself() -> None:
    problem = random_problem(1, alpha=1.0)
    trace = Trace(10)
    WithoutFirstOrder(ALGORITHMS["bso"]).run(problem, 6, Layout((16,)), Options(), trace)
    assert trace.history == [problem.start(6).objective]
    assert 0 < trace.iterations <= 10
