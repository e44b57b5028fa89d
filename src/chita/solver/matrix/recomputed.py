"""A that is recomputed: a window of columns is in memory, others cost a pass over the samples.

This suits solvers that read all columns once, in order, as for the blocks of algorithm 6. They need
one pass for each window, and no disk.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import Demand, HeldMatrix, HeldTarget, Target


class WindowTarget(HeldTarget):
    """A target for the first window of columns.

    Args:
        demand: the size of A.
        width: the number of columns in a window.
    """

    several_passes = True

    def __init__(self, demand: Demand, width: int) -> None:
        super().__init__(demand, 0, min(width, demand.columns))
        self.demand = demand

    def matrix(self, again: Callable[[Target], None]) -> RecomputedMatrix:
        return RecomputedMatrix(self, again)


class RecomputedMatrix(GradientMatrix):
    """The n x p matrix A, of which one window of columns is in memory at a time.

    Args:
        window: the first window, with all rows written.
        again: writes the same rows into another target.
    """

    def __init__(self, window: WindowTarget, again: Callable[[Target], None]) -> None:
        demand = window.demand
        super().__init__(demand.rows, demand.columns, demand.dtype, demand.device)
        self._demand, self._width, self._again = demand, window.last, again
        self._window: HeldTarget | None = window

    def read(self, start: int, stop: int) -> Tensor:
        """Return the columns; if they are outside the window, it moves to start with them."""
        window = self._window
        if window is None or start < window.first or stop > window.last:
            self._window = window = None  # free its memory before the next one is allocated
            last = min(max(stop, start + self._width), self.p)
            window = HeldTarget(self._demand, start, last)
            self._again(window)
            self._window = window
        return window.stored[start - window.first : stop - window.first]

    def columns(self, index: Tensor) -> HeldMatrix:
        return HeldMatrix(torch.cat(list(self.chunks(index)) or [self.read(0, 0)]))
