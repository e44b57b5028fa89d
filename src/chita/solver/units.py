"""Units in which the problem neither underflows nor overflows.

With s A, s c, s^2 mu and s^2 M in the places of A, c, mu and the moments M of the layers, problem
(main-problem) has the same solutions and the objective s^2 Q. For a power of two s, every operation
of the solvers gives the same bits, unless it underflows or overflows in one of the two units.
"""

from __future__ import annotations

from dataclasses import replace

from chita.solver.matrix.scaled import ordinary
from chita.solver.problem import Problem


def in_ordinary_units(problem: Problem) -> tuple[Problem, float]:
    """Return the problem scaled by s, and s; the problem itself, and 1, if A and mu are ordinary.

    The larger of A and sqrt(mu) sets the units: next to it, what underflows does not count.
    """
    matrix, s = ordinary(problem.matrix, problem.mu**0.5)
    if s == 1:
        return problem, s
    scaled = replace(
        problem,
        matrix=matrix,
        mu=problem.mu * s * s,
        offset=problem.offset * s,
        constant=problem.constant * s * s,
        moments=tuple(moment * (s * s) for moment in problem.moments),
    )
    return scaled, s
