"""The algorithm interface, and algorithms that choose a support and then update the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from torch import Tensor

from chita.solver.blocks.batched_problem import BatchedPoint, BatchedProblem, BatchedSolution
from chita.solver.blocks.coupled import SHARE, solve_coupled
from chita.solver.blocks.independent import (
    BatchSolver,
    alone,
    cut_blocks,
    one_by_one,
    side_by_side,
    solve_independent,
)
from chita.solver.iht_active_set import Refine, refine_by_backsolve, shrink_support
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem

SupportRule = Callable[[Problem, Iterate, Options, Trace], tuple[Iterate, bool]]
BatchRule = Callable[[BatchedProblem, BatchedPoint, Options, Trace], BatchedSolution]


@dataclass(frozen=True)
class Layout:
    """The division of the p columns into layers, and of the layers into blocks.

    Attributes:
        layers: the number of weights in each layer, in the order of the columns.
        block_size: B_size of the paper; None for one problem over all columns.
        units: for each layer, the number of adjacent weights that no block may separate; None for
            single weights.
    """

    layers: tuple[int, ...]
    block_size: int | None = None
    units: tuple[int, ...] | None = None

    @cached_property
    def blocks(self) -> list[tuple[int, int]] | None:
        """The blocks [start, stop), each within one layer; None without blocks."""
        if self.block_size is None:
            return None
        return cut_blocks(self.layers, self.block_size, self.units)


def begin(problem: Problem, k: int, trace: Trace) -> Iterate:
    """Return P_k(w0), the starting point of every method, and start the history with it."""
    x = problem.start(k)
    trace.history.append(x.objective)
    return x


class Algorithm(Protocol):
    """An exact or approximate solver of problem (main-problem)."""

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        """Return a point with k weights and a freshly computed residual, and whether it converged.

        The history in `trace` starts with the objective at P_k(w0).
        """
        ...  # pragma: no cover


@dataclass(frozen=True)
class SupportThenUpdate:
    """A support rule followed by an update of the weights on that support.

    The rule maps P_k(w0) to a point with the support to keep. Both run on the whole problem, or on
    independent blocks (algorithm 6), or on coupled blocks.

    Attributes:
        support: the support rule.
        update: the update of the weights.
        batched: rule and update for a batch of blocks at once, with the paper's step size and
            without continuation; None if there is no batched form.
    """

    support: SupportRule
    update: Refine
    batched: BatchRule | None = None

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        def whole(part: Problem, x: Iterate, record: Trace) -> tuple[Iterate, bool]:
            x = shrink_support(part, x, options.continuation)
            point, settled = self.support(part, x, options, record)
            return self.update(part, point, options, record), settled

        def stay(part: Problem, x: Iterate, record: Trace) -> tuple[Iterate, bool]:
            return self.update(part, x, options, record), True

        blocks = layout.blocks
        if blocks is None:
            x, settled = whole(problem, begin(problem, k, trace), trace)
            return problem.at(x.w, x.support), settled
        batches, rules = one_by_one(blocks), (alone(whole), alone(stay))
        free = problem.constraint.free_in(blocks)
        plain = free and options.step == "paper" and not options.continuation
        if self.batched and plain:
            still = replace(options, iterations=0)
            share = SHARE if options.block_sweeps else 1.0
            batches = side_by_side(blocks, problem.matrix, share)
            rules = _under(self.batched, options), _under(self.batched, still)
        x, settled = solve_independent(problem, k, batches, rules[0], trace)
        if options.block_sweeps:
            return solve_coupled(problem, x, batches, rules, options, trace)
        return x, settled


@dataclass(frozen=True)
class UpdateOnly:
    """The exact minimiser on a given support, without blocks.

    It serves several lambdas with one support, whose Gram product the matrix caches. Its history
    starts with w0 on that support.

    Attributes:
        support: the columns of this rank that are kept, sorted.
    """

    support: Tensor

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        x = problem.unmoved(self.support)
        trace.history.append(x.objective)
        x = refine_by_backsolve(problem, x, options, trace)
        return problem.at(x.w, x.support), True


def _under(rule: BatchRule, options: Options) -> BatchSolver:
    return lambda part, x, record: rule(part, x, options, record)
