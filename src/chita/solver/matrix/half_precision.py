"""A in half precision, bfloat16 or float16, on a CPU or a GPU; its products are in float32.

Every row is stored relative to a power of two near its largest entry. This scaling is exact and
keeps float16 from overflowing; entries that underflow are at most 2^-39 of the largest entry.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from chita.solver.matrix.gradient_matrix import CHUNK, GradientMatrix
from chita.solver.matrix.in_memory import Demand, Place, Target

LARGEST = 15  # stored entries are below 2^15; the largest float16 is 65504
SMALLEST_EXPONENT = -100  # the least of a scale: denormal scales are not exact
BUFFER_BYTES = 256 << 20  # size of the buffer of rows in full precision
GPU_PIECE_BYTES = 1 << 28  # bytes read at a time on a GPU, which needs large pieces to be busy


def row_scales(columns: Tensor) -> Tensor:
    """Return the power of two, (R,), that each row of `columns`, (c, R), is stored relative to."""
    largest = torch.maximum(columns.amax(0), -columns.amin(0))
    exponent = torch.frexp(largest).exponent.clamp_min(SMALLEST_EXPONENT) - LARGEST
    return torch.ldexp(torch.ones_like(largest), exponent)


class HalfMatrix(GradientMatrix):
    """The n x p matrix A, held as a tensor of half precision.

    Args:
        stored: (p, n) bfloat16 or float16; row j is column j of A, divided by the scales.
        scales: (n,), in the precision of the products.
    """

    def __init__(self, stored: Tensor, scales: Tensor) -> None:
        p, n = stored.shape
        super().__init__(n, p, scales.dtype, stored.device)
        self.stored, self.scales = stored, scales

    @property
    def gathers_fast(self) -> bool:
        return True

    @property
    def piece(self) -> int:
        if self.device.type == "cpu":
            return CHUNK
        return max(1, GPU_PIECE_BYTES // max(1, self.n * self.dtype.itemsize))

    def read(self, start: int, stop: int) -> Tensor:
        return self._decode(self.stored[start:stop])

    def _pick(self, index: Tensor) -> Tensor:
        return self._decode(self.stored.index_select(0, index))

    def _decode(self, stored: Tensor) -> Tensor:
        return stored.to(self.dtype).mul_(self.scales)

    def columns(self, index: Tensor) -> HalfMatrix:
        return HalfMatrix(self.stored.index_select(0, index), self.scales)


class HalfTarget(Target):
    """A target that buffers rows in full precision, then rounds them.

    Args:
        demand: the size of A.
        dtype: the type in which A is stored, bfloat16 or float16.
    """

    def __init__(self, demand: Demand, dtype: torch.dtype) -> None:
        super().__init__(0, demand.columns)
        self.most_rows = min(demand.rows, max(1, BUFFER_BYTES // demand.vector_bytes))
        shape = (demand.columns, demand.rows)
        self._stored = torch.empty(shape, dtype=dtype, device=demand.device)
        self._scales = torch.empty(demand.rows, dtype=demand.dtype, device=demand.device)
        self._buffer = self._scales.new_empty(demand.columns, self.most_rows)
        self._done = self._begun = 0

    def begin(self, rows: int) -> Place:
        self._begun = self._done + rows
        return Place(self._buffer[:, :rows])

    def end(self) -> None:
        rows = slice(self._done, self._begun)
        columns = self._buffer[:, : self._begun - self._done]
        scales = row_scales(columns)
        self._stored[:, rows] = columns.div_(scales)
        self._scales[rows] = scales
        self._done = self._begun

    def matrix(self, again: Callable[[Target], None]) -> HalfMatrix:
        return HalfMatrix(self._stored, self._scales)
