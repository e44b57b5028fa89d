"""Targets: they receive the rows of A as they are computed, and build the matrix.

The rows come in order, in chunks of a few. For each chunk, `begin` returns the memory to write to
and `end` completes it; `matrix` returns the matrix when all rows are written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.solver.matrix.gradient_matrix import GradientMatrix


@dataclass(frozen=True)
class Demand:
    """The size of A, and the measured cost of its first row.

    Attributes:
        rows: n.
        columns: p.
        dtype: the type of the gradients, float32 or float64.
        device: the device that computes them.
        chunk: the rows that are computed at a time, if the target accepts as many.
        row_bytes: the memory of autograd for one row.
        row_seconds: the time to compute one row.
        sample_bytes: the bytes of the inputs and targets of one row.
    """

    rows: int
    columns: int
    dtype: torch.dtype
    device: torch.device
    chunk: int = 1
    row_bytes: int = 0
    row_seconds: float = 0.0
    sample_bytes: int = 0

    @property
    def column_bytes(self) -> int:
        """The bytes of one column of A."""
        return self.rows * self.dtype.itemsize

    @property
    def vector_bytes(self) -> int:
        """The bytes of a vector over all columns, such as a row of A."""
        return self.columns * self.dtype.itemsize

    @property
    def matrix_bytes(self) -> int:
        """The bytes of A."""
        return self.columns * self.column_bytes


class Place:
    """The memory of R rows of A, or of adjacent columns of these rows.

    Args:
        columns: (c, R), the memory to write to.
        first: the column of A that `columns` starts with.
    """

    def __init__(self, columns: Tensor, first: int = 0) -> None:
        self.columns, self.first, self.last = columns, first, first + len(columns)
        self._sums = columns.new_zeros(columns.shape[1])

    def clip(self, start: int, stop: int) -> tuple[slice, slice]:
        """Return the slices of this place and of the columns [start, stop) of A that overlap."""
        low, high = max(start, self.first), min(stop, self.last)
        high = max(low, high)
        return slice(low - self.first, high - self.first), slice(low - start, high - start)

    def put(self, start: int, columns: Tensor) -> None:
        """Write the columns of A from `start` on, (entries, R); columns outside are skipped."""
        there, here = self.clip(start, start + len(columns))
        self.columns[there].copy_(columns[here])
        self._sums += columns[here].sum(0)

    def add(self, start: int, columns: Tensor) -> None:
        """Add columns to those that were put there."""
        there, here = self.clip(start, start + len(columns))
        self.columns[there].add_(columns[here])
        self._sums += columns[here].sum(0)

    def clear(self, start: int, stop: int) -> None:
        """Set the columns [start, stop) of A to zero."""
        self.columns[self.clip(start, stop)[0]] = 0

    @property
    def seems_finite(self) -> bool:
        """False if any column put here is not finite, which a sum preserves."""
        return bool(self._sums.isfinite().all())


class Target(ABC):
    """Receives the rows of A, or of its columns [first, last).

    Attributes:
        most_rows: the most rows in one chunk.
        several_passes: whether its matrix may need the rows again.
    """

    most_rows: int
    several_passes: bool = False

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    @abstractmethod
    def begin(self, rows: int) -> Place:
        """Return the memory for the next rows; rows that were begun but not ended are discarded."""

    @abstractmethod
    def end(self) -> None:
        """Complete the rows that were begun."""

    @abstractmethod
    def matrix(self, again: Callable[[Target], None]) -> GradientMatrix:
        """Return the matrix after all rows are written.

        Args:
            again: writes the same rows into another target.
        """


Store = Callable[[Demand], Target]
