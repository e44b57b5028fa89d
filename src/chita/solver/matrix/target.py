"""Targets: what takes in the rows of A as they are computed, and makes the matrix of them.

The rows come in chunks of a few, in order. A target lends the place for a chunk, takes it back when
it is written, and gives the matrix at the end.
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
    """The size of A, and what its first row tells of the others.

    Attributes:
        rows: n.
        columns: p.
        dtype: of the gradients, float32 or float64.
        device: where they are computed.
        chunk: rows that are computed at a time, if the target takes so many.
        row_bytes: what autograd keeps for one row.
        row_seconds: what the row took.
        sample_bytes: of the inputs and targets of one row.
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
        """Of one column of A."""
        return self.rows * self.dtype.itemsize

    @property
    def vector_bytes(self) -> int:
        """Of a vector over all columns, such as a row of A."""
        return self.columns * self.dtype.itemsize

    @property
    def matrix_bytes(self) -> int:
        """Of A."""
        return self.columns * self.column_bytes


class Place:
    """The place of R rows of A, or of a run of their columns.

    Args:
        columns: (c, R), to write to.
        first: the column of A that `columns` begin with.
    """

    def __init__(self, columns: Tensor, first: int = 0) -> None:
        self.columns, self.first, self.last = columns, first, first + len(columns)
        self._sums = columns.new_zeros(columns.shape[1])

    def clip(self, start: int, stop: int) -> tuple[slice, slice]:
        """Where the columns [start, stop) of A lie in this place, and which of them have one."""
        low, high = max(start, self.first), min(stop, self.last)
        high = max(low, high)
        return slice(low - self.first, high - self.first), slice(low - start, high - start)

    def put(self, start: int, columns: Tensor) -> None:
        """Write the columns of A from `start` on, (entries, R); those that have no place here are
        passed over."""
        there, here = self.clip(start, start + len(columns))
        self.columns[there].copy_(columns[here])
        self._sums += columns[here].sum(0)

    def add(self, start: int, columns: Tensor) -> None:
        """Add to what was put there."""
        there, here = self.clip(start, start + len(columns))
        self.columns[there].add_(columns[here])
        self._sums += columns[here].sum(0)

    def clear(self, start: int, stop: int) -> None:
        """Zeros in the columns [start, stop) of A."""
        self.columns[self.clip(start, stop)[0]] = 0

    @property
    def seems_finite(self) -> bool:
        """False if anything put here is not finite, for that stays so in a sum."""
        return bool(self._sums.isfinite().all())


class Target(ABC):
    """Takes in the rows of A, or of its columns [first, last).

    Attributes:
        most_rows: that it lends a place for at a time.
        several_passes: whether its matrix may ask for the rows again.
    """

    most_rows: int
    several_passes: bool = False

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    @abstractmethod
    def begin(self, rows: int) -> Place:
        """A place for the next rows. What is begun and not ended is forgotten."""

    @abstractmethod
    def end(self) -> None:
        """The rows begun are written."""

    @abstractmethod
    def matrix(self, again: Callable[[Target], None]) -> GradientMatrix:
        """The matrix, when all rows are written.

        Args:
            again: writes the same rows into another target.
        """


Store = Callable[[Demand], Target]
