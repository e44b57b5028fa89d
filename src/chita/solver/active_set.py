"""The active set (algorithm 4): solve over a few columns, look once over all, go on if it pays."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.iht import Refine, iht_cycles
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.stepsize import Path

BEYOND = 1 + 1e-5  # a step this much longer than tau_c is past it, in float32 too


def active_set(
    problem: Problem, x: Iterate, options: Options, refine: Refine, trace: Trace
) -> tuple[Iterate, bool]:
    """Algorithm 4 from a point x. Returns the point reached and whether it converged."""
    p = problem.p
    size = min(int(options.active * problem.kept(x)), p)
    if size in (0, p):
        return iht_cycles(problem, x, options, refine, trace)
    active = _union(problem.largest(problem.w0, size), x.support)
    columns = problem.matrix.columns(active)
    settled_at = torch.inf  # Q when the last active set had settled
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
    """An IHT update of the full vector that lowers Q and whose support leaves the active set.

    From just beyond the first breaking point, where the support begins to change, or from where Q
    can be seen to fall, the step grows by gamma for as long as Q falls; of the points that left the
    active set the best is taken.
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
