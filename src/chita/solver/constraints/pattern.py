"""Patterns of kept weights that hardware and kernels can use: N:M, and tiles such as 4x1.

A pattern cuts the matrix of a layer, (outputs, inputs), into small groups of weights. N:M keeps N
of M neighbours along the inputs. Tiles of `rows` outputs by `columns` inputs are kept or dropped
whole.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.constraints.constraint import Constraint
from chita.solver.constraints.n_of_m import Groups
from chita.solver.constraints.tiles import Tiles

LARGEST_M = 32


class Pattern(ABC):
    """A division of a matrix into groups, and a rule for the weights that each group keeps."""

    @abstractmethod
    def fits(self, outputs: int, inputs: int) -> bool:
        """Return whether the groups divide a matrix evenly."""

    @abstractmethod
    def cut(self, matrix: Tensor) -> Tensor:
        """Return the entries of a matrix (outputs, inputs) by group, (G, size of a group)."""

    @property
    @abstractmethod
    def unit(self) -> int:
        """The number of weights that are kept or removed together."""

    @abstractmethod
    def kept(self, p: int, k: int) -> int:
        """Return the number of p weights that are kept when k are requested."""

    @abstractmethod
    def constraint(self, ids: Tensor) -> Constraint:
        """Return the constraint for weights whose groups are `ids`, (p,)."""


@dataclass(frozen=True)
class NM(Pattern):
    """N of every M neighbours along the inputs.

    At lower sparsities, every group keeps at least N, and all groups compete for the rest.
    """

    n: int
    m: int

    @property
    def sparsity(self) -> float:
        return 1 - self.n / self.m

    def fits(self, outputs: int, inputs: int) -> bool:
        return inputs % self.m == 0

    def cut(self, matrix: Tensor) -> Tensor:
        return matrix.reshape(-1, self.m)

    @property
    def unit(self) -> int:
        return 1

    def kept(self, p: int, k: int) -> int:
        return max(k, p // self.m * self.n)

    def constraint(self, ids: Tensor) -> Groups:
        least = ids.new_full((len(ids) // self.m,), self.n)
        return Groups(ids, least, torch.full_like(least, self.m))


@dataclass(frozen=True)
class TileShape(Pattern):
    """Tiles of `rows` outputs by `columns` inputs, the same ones for every layer."""

    rows: int
    columns: int

    def fits(self, outputs: int, inputs: int) -> bool:
        return outputs % self.rows == 0 and inputs % self.columns == 0

    def cut(self, matrix: Tensor) -> Tensor:
        outputs, inputs = matrix.shape
        rows, columns = self.rows, self.columns
        tiles = matrix.reshape(outputs // rows, rows, inputs // columns, columns)
        return tiles.transpose(1, 2).reshape(-1, rows * columns)

    @property
    def unit(self) -> int:
        return self.rows * self.columns

    def kept(self, p: int, k: int) -> int:
        return k // self.unit * self.unit

    def constraint(self, ids: Tensor) -> Tiles:
        return Tiles(ids)


def parse_pattern(given: str) -> Pattern:
    """Return the pattern that "2:4" or "4x1" names."""
    found = re.fullmatch(r"(\d{1,3})([:x])(\d{1,3})", given) if isinstance(given, str) else None
    if found is not None:
        first, second = int(found[1]), int(found[3])
        if found[2] == ":" and 1 <= first < second <= LARGEST_M:
            return NM(first, second)
        if found[2] == "x" and first >= 1 and second >= 1 and first * second > 1:
            return TileShape(first, second)
    raise ChitaError(
        f"pattern must be N:M with 1 <= N < M <= {LARGEST_M}, such as '2:4', or tiles of outputs x "
        f"inputs, such as '4x1', got {given!r}"
    )


def first_cut(ids: Tensor) -> int:
    """Return the least number of columns after which a cut separates no group.

    Args:
        ids: the group of each weight of a matrix, (rows, columns).
    """
    columns = torch.arange(ids.shape[1], device=ids.device).expand_as(ids).flatten()
    groups = int(ids.max()) + 1
    first, last = (
        columns.new_full((groups,), fill).scatter_reduce_(0, ids.flatten(), columns, reduce)
        for fill, reduce in ((ids.shape[1], "amin"), (0, "amax"))
    )
    across = columns.new_zeros(ids.shape[1] + 1)
    ones = torch.ones_like(first)
    across.index_add_(0, first + 1, ones).index_add_(0, last + 1, -ones)
    return 1 + int((across.cumsum(0)[1:] == 0).nonzero()[0])


def read_sparsity(sparsity: float | str, pattern: str | None) -> tuple[float, str | None]:
    """Return sparsity and pattern; a sparsity of "2:4" means 0.5 with this pattern."""
    if not isinstance(sparsity, str) or ":" not in sparsity:
        return sparsity, pattern  # type: ignore[return-value]  # the configuration checks it
    if pattern not in (None, sparsity):
        raise ChitaError(f"sparsity={sparsity!r} and pattern={pattern!r} are different patterns")
    named = parse_pattern(sparsity)
    assert isinstance(named, NM)
    return named.sparsity, sparsity
