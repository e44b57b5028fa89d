"""Continuation in the number of weights: reach a small support by way of larger ones.

Not in the paper. IHT from P_k(w0) seldom leaves the support of the largest trained weights when k
is small: its steps are too short to swap weights of any size. Solving on a large support first and
shrinking it by the magnitude of the *solved* weights, a little at a time, lets the quadratic model
say which weights matter. A is the same throughout, so this is still a single stage.
"""

from __future__ import annotations

from chita.solver.backsolve import backsolve
from chita.solver.problem import Iterate, Problem

WIDEST = 0.5  # share of the weights to begin with


def shrink_support(problem: Problem, x: Iterate, steps: int) -> Iterate:
    """A point with as many weights as x, reached in `steps` shrinking supports; x if it is better.

    The sizes fall by a constant factor from half of the weights to k; each costs a backsolve.
    """
    k = problem.kept(x)
    widest = max(k, int(WIDEST * problem.p))
    if steps == 0 or k in (0, widest):
        return x
    point = problem.start(widest)
    for step in range(1, steps + 1):
        point = backsolve(problem, point).point
        size = round(widest * (k / widest) ** (step / steps))
        point = problem.at(*problem.project(point.w, size))
    point = backsolve(problem, point).point
    return point if point.objective < x.objective else x
