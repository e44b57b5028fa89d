"""What an algorithm is: it takes P_k(w0) to a pruned point of the problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from chita.l0.blocks import cut_blocks, solve_blocks
from chita.l0.continuation import shrink_support
from chita.l0.iht import Refine
from chita.l0.options import Options, Trace
from chita.l0.problem import Iterate, Problem

SupportRule = Callable[[Problem, Iterate, Options, Trace], tuple[Iterate, bool]]


@dataclass(frozen=True)
class Layout:
    """How the p columns fall into layers, and the size of the blocks these are cut into.

    Attributes:
        layers: the number of weights in each layer, in the order of the columns.
        block_size: B_size of the paper; None for one problem over all columns.
    """

    layers: tuple[int, ...]
    block_size: int | None = None

    @property
    def blocks(self) -> list[tuple[int, int]] | None:
        """The blocks [start, stop), none of which crosses a layer; None if there are no blocks."""
        return None if self.block_size is None else cut_blocks(self.layers, self.block_size)


class Algorithm(Protocol):
    """A way to solve problem (main-problem), exactly or not."""

    def run(
        self, problem: Problem, x: Iterate, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        """From x = P_k(w0) to a point with k weights, and whether that converged."""
        ...  # pragma: no cover


@dataclass(frozen=True)
class SupportThenUpdate:
    """A support rule, which takes P_k(w0) to a point with the support to keep, and an update, which
    moves the weights on that support; whole, or block by block (algorithm 6)."""

    support: SupportRule
    update: Refine

    def run(
        self, problem: Problem, x: Iterate, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        def whole(part: Problem, start: Iterate, record: Trace) -> tuple[Iterate, bool]:
            start = shrink_support(part, start, options.continuation)
            point, settled = self.support(part, start, options, record)
            return self.update(part, point, options, record), settled

        blocks = layout.blocks
        if blocks is None:
            return whole(problem, x, trace)
        return solve_blocks(problem, x, blocks, whole, trace)
