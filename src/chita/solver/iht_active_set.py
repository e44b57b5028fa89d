"""Iterative hard thresholding: alone, in cycles with a refinement (algorithm 3), and on an active
set (algorithm 4); and continuation, which reaches a small support by way of larger ones.

Algorithm 4 solves the problem over a few columns, then takes one step over all columns, and
continues with a wider active set while the objective falls.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from chita.solver.backsolve import backsolve
from chita.solver.coordinate_descent import coordinate_descent
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.stepsize import Path, StepRule, backtracking_step, lipschitz_step, paper_step

WIDEST = 0.5  # the share of the weights in the first support of a continuation
BEYOND = 1 + 1e-5  # a step this much longer than tau_c is past it, in float32 too


def shrink_support(problem: Problem, x: Iterate, steps: int) -> Iterate:
    """Return a point with as many weights as x, reached by `steps` shrinking supports, or x itself.

    The sizes fall by a constant factor from half of the weights to k; each one costs a backsolve.
    The better of the two points is returned.
    """
    k = problem.kept(x)
    widest = max(k, int(WIDEST * problem.p))
    if steps == 0 or k in (0, widest):
        return x
    steps = min(steps, widest - k)  # more would repeat sizes
    point = problem.start(widest)
    for step in range(1, steps + 1):
        point = backsolve(problem, point).point
        size = round(widest * (k / widest) ** (step / steps))
        point = problem.at(*problem.project(point.w, size))
    point = backsolve(problem, point).point
    return point if point.objective < x.objective else x


Refine = Callable[[Problem, Iterate, Options, Trace], Iterate]


def step_rule(problem: Problem, options: Options) -> StepRule:
    """Return the step size scheme that the options name."""
    if options.step == "lipschitz":
        return lipschitz_step(problem)
    return backtracking_step if options.step == "backtracking" else paper_step(options.gamma)


def iht(
    problem: Problem, x: Iterate, rounds: int, *, step: StepRule, tol: float, trace: Trace
) -> Iterate:
    """Run up to `rounds` updates w <- HT(w, k, tau) (eq. iht); stop when Q no longer falls."""
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
    """Run algorithm 3: t_ht updates of IHT, then the refinement on the support, until Q settles.

    Returns:
        The point reached, and whether Q settled before the iterations were used up.
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
    """Return x unchanged, for plain IHT."""
    return x


def refine_by_descent(problem: Problem, x: Iterate, options: Options, trace: Trace) -> Iterate:
    """Run t_cd sweeps of cyclic coordinate descent."""
    for point in coordinate_descent(problem, x, sweeps=options.t_cd, tol=options.tol):
        trace.history.append(point.objective)
        x = point
    return x


def refine_by_backsolve(problem: Problem, x: Iterate, options: Options, trace: Trace) -> Iterate:
    """Return the exact minimiser on the support."""
    solved = backsolve(problem, x)
    trace.history.append(solved.point.objective)
    trace.jitter = max(trace.jitter, solved.jitter)
    return solved.point


def active_set(
    problem: Problem, x: Iterate, options: Options, refine: Refine, trace: Trace
) -> tuple[Iterate, bool]:
    """Run algorithm 4 from a point x; return the point reached and whether it converged."""
    p = problem.p
    size = min(int(options.active * problem.kept(x)), p)
    if size in (0, p):
        return iht_cycles(problem, x, options, refine, trace)
    active = _union(problem.largest(problem.w0, size), x.support)
    columns = problem.matrix.columns(active)
    settled_at = torch.inf  # Q at the solution of the last active set
    while not trace.spent:
        part = problem.restrict(active, columns, x)
        y, settled = iht_cycles(part, problem.drop(active, x), options, refine, trace)
        x = problem.lift(active, y)
        if not settled or trace.spent:
            return x, False
        if settled_at - x.objective <= options.tol * x.objective:
            return x, True
        settled_at = x.objective
        outside = step_outside(problem, x, active, options.gamma)
        trace.iterations += 1
        if outside is None:
            return x, True
        trace.history.append(outside.objective)
        wider = _union(active, outside.support)
        columns = problem.matrix.widen(columns, active, wider)
        active, x = wider, outside
    return x, False


def step_outside(problem: Problem, x: Iterate, active: Tensor, gamma: float) -> Iterate | None:
    """Return an IHT update of the full vector that lowers Q and leaves the active set.

    The step starts just beyond the first breaking point, where the support begins to change, or
    where Q falls visibly, and grows by gamma while Q falls. Of the points whose support leaves the
    active set, the best is returned; None if there is none.
    """
    path = Path(problem, x, problem.kept(x))
    known = torch.zeros_like(path.inside)
    known[active] = True
    tau = max(path.first_breaking_point() * BEYOND, path.least_visible_step(gamma))
    best: Iterate | None = None
    while 0 < tau < torch.inf:
        point = path.at(tau)
        if point.objective >= (best or x).objective:
            break
        if not problem.ranks.all(bool(known[point.support].all())):
            best = point
        tau *= gamma
    return best


def _union(first: Tensor, second: Tensor) -> Tensor:
    union: Tensor = torch.unique(torch.cat([first, second]))
    return union
