"""Iterative hard thresholding, alone and in cycles with a refinement (algorithm 3), and
continuation, which reaches a small support by way of larger ones."""

from __future__ import annotations

from collections.abc import Callable

from chita.solver.backsolve import backsolve
from chita.solver.coordinate_descent import coordinate_descent
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.stepsize import Path, StepRule, backtracking_step, lipschitz_step, paper_step

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


Refine = Callable[[Problem, Iterate, Options, Trace], Iterate]


def step_rule(problem: Problem, options: Options) -> StepRule:
    """The step size scheme that the options name."""
    if options.step == "lipschitz":
        return lipschitz_step(problem)
    return backtracking_step if options.step == "backtracking" else paper_step(options.gamma)


def iht(
    problem: Problem, x: Iterate, rounds: int, *, step: StepRule, tol: float, trace: Trace
) -> Iterate:
    """Up to `rounds` updates w <- HT(w, k, tau) (eq. iht); stops where Q no longer falls."""
    for _ in range(rounds):
        if trace.spent:
            break
        before, after = x, step(Path(problem, x, problem.kept(x)))
        trace.iterations += 1
        if not after.objective < before.objective:
            break
        x = after
        trace.history.append(x.objective)
        if before.objective - x.objective <= tol * before.objective:
            break
    return x


def iht_cycles(
    problem: Problem, x: Iterate, options: Options, refine: Refine, trace: Trace
) -> tuple[Iterate, bool]:
    """Algorithm 3: t_ht updates of IHT, then the refinement on the support, until Q settles.

    Returns the point reached and whether it settled before the iterations were spent.
    """
    step = step_rule(problem, options)
    while not trace.spent:
        before = x.objective
        x = iht(problem, x, options.t_ht, step=step, tol=options.tol, trace=trace)
        x = refine(problem, x, options, trace)
        if before - x.objective <= options.tol * before:
            return x, True
    return x, False


def no_refinement(problem: Problem, x: Iterate, options: Options, trace: Trace) -> Iterate:
    """Plain IHT."""
    return x


def refine_by_descent(problem: Problem, x: Iterate, options: Options, trace: Trace) -> Iterate:
    """t_cd sweeps of cyclic coordinate descent."""
    for point in coordinate_descent(problem, x, sweeps=options.t_cd, tol=options.tol):
        trace.history.append(point.objective)
        x = point
    return x


def refine_by_backsolve(problem: Problem, x: Iterate, options: Options, trace: Trace) -> Iterate:
    """The exact minimiser on the support."""
    solved = backsolve(problem, x)
    trace.history.append(solved.point.objective)
    trace.jitter = max(trace.jitter, solved.jitter)
    return solved.point
