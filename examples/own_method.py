"""Rank weights by |w g|, then update those that stay by the backsolve of algorithm 5.

    chita prune mlpnet --import examples/own_method.py --method taylor --sparsity 0.9
    chita bench table1 --quick --import examples/own_method.py --out runs/own

The second command compares the method with those of the paper, in a table and a figure.
"""

import torch

import chita
from chita.curvature import Fisher
from chita.solver.algorithm import SupportThenUpdate
from chita.solver.iht_active_set import refine_by_backsolve
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem


def taylor_support(
    problem: Problem, start: Iterate, options: Options, trace: Trace
) -> tuple[Iterate, bool]:
    """Return w0 on the k weights with the largest |w g|, and True: the rule has converged."""
    ones = torch.ones_like(problem.offset)
    gradient = problem.matrix.adjoint(ones) / problem.matrix.n  # (p,), the mean of the rows of A
    kept = problem.largest(problem.w0 * gradient, problem.kept(start))
    return problem.unmoved(kept), True


TAYLOR = chita.register_method(
    chita.Method("taylor", Fisher, SupportThenUpdate(taylor_support, refine_by_backsolve))
)
