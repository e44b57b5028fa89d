"""A in a file, for matrices larger than memory.

The columns are read and written by plain calls, not through a memory map. The pages of a map count
as memory of the process, and copies of them count again. Here only the pieces that are read are in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from tempfile import TemporaryFile, gettempdir
from typing import BinaryIO, cast

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.half_precision import row_scales
from chita.solver.matrix.in_memory import Demand, HeldMatrix, Place, Target

PIECE_BYTES = 32 << 20  # bytes read or written at a time: enough for a disk to reach its speed
GAP_BYTES = 128 << 10  # a gap of this size takes less time to read than to skip


class SlabFile:
    """A temporary file of slabs of rows: slab s is (p, R_s), with each column's entries together.

    The file (in TMPDIR) has no name: it disappears with the last reference to it, or when the
    process ends, even if it is killed.

    Args:
        dtype: the type of the entries.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.slabs: list[tuple[int, int]] = []  # the offset of each in bytes, and its rows
        self._end = 0
        self._part = _Buffer(dtype)
        self._file = cast(BinaryIO, TemporaryFile(buffering=0))  # noqa: SIM115

    def append(self, rows: int, parts: Iterable[Tensor]) -> None:
        """Append a slab of all columns, given in order and in parts of (columns, rows)."""
        self.slabs.append((self._end, rows))
        self._file.seek(self._end)
        for part in parts:
            left = _bytes_of(part.to(self.dtype).contiguous())
            self._end += len(left)
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError as error:
                raise ChitaError(
                    f"A cannot be written to a file in {gettempdir()}: {error.strerror}; "
                    "set TMPDIR to a folder with more space"
                ) from error

    def read(self, start: int, stop: int, columns: Tensor) -> None:
        """Fill `columns`, (stop - start, n), with the columns [start, stop) of all slabs."""
        done = 0
        for begin, rows in self.slabs:
            place = columns[:, done : done + rows]
            whole = place.is_contiguous() and columns.dtype == self.dtype
            part = place if whole else self._part(stop - start, rows)
            self._file.seek(begin + start * rows * self.dtype.itemsize)
            left = _bytes_of(part)
            while left:
                count: int = self._file.readinto(left)  # type: ignore[attr-defined]
                if not count:
                    raise ChitaError("the temporary file of A is shorter than its columns")
                left = left[count:]
            if not whole:
                place.copy_(part)
            done += rows


class _Buffer:
    """Memory that is reused, because new pages take longer to allocate than to fill."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._entries = torch.empty(0, dtype=dtype)

    def __call__(self, columns: int, rows: int) -> Tensor:
        """Return a (columns, rows) tensor, which overwrites the previous one."""
        if len(self._entries) < columns * rows:
            self._entries = self._entries.new_empty(columns * rows)
        return self._entries[: columns * rows].view(columns, rows)


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor."""
    return tensor.view(-1).view(torch.uint8).numpy().data


class FileMatrix(GradientMatrix):
    """The n x p matrix A in a file.

    Args:
        file: the file with all n rows of p columns.
        p: the number of columns.
        dtype: the type in which products are computed.
        device: the device on which products are computed.
        scales: (n,), the scales of rows in half precision; None for other types.
        room: the bytes that gathered columns may take in memory.
    """

    def __init__(
        self,
        file: SlabFile,
        p: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        scales: Tensor | None,
        room: int,
    ) -> None:
        super().__init__(sum(rows for _, rows in file.slabs), p, dtype, device)
        self.room = room
        self._file, self._scales = file, scales
        self._piece = _Buffer(dtype)

    @property
    def piece(self) -> int:
        return _columns_in(PIECE_BYTES, self.n, self.dtype)

    def read(self, start: int, stop: int) -> Tensor:
        return self._read(start, stop, self._piece(stop - start, self.n))

    def _read(self, start: int, stop: int, columns: Tensor) -> Tensor:
        self._file.read(start, stop, columns)
        columns = columns.to(self.device)
        return columns if self._scales is None else columns.mul_(self._scales)

    def _pick(self, index: Tensor) -> Tensor:
        """Return the columns at `index`; columns that are far apart are read separately."""
        gap = GAP_BYTES * len(self._file.slabs) // (self.n * self.dtype.itemsize)
        cuts = (index.diff() > gap).nonzero().squeeze(1) + 1
        runs = torch.tensor_split(index, cuts.cpu())
        return torch.cat([super(FileMatrix, self)._pick(run) for run in runs])

    def columns(self, index: Tensor) -> GradientMatrix:
        """Return the columns at `index`, in memory if they fit there twice, else in another file.

        They must fit twice because a second copy of them may be made.
        """
        if 2 * len(index) * self.n * self.dtype.itemsize <= self.room:
            stored = torch.empty(len(index), self.n, dtype=self.dtype, device=self.device)
            done = 0
            for chunk in self.chunks(index):
                stored[done : done + len(chunk)] = chunk
                done += len(chunk)
            return HeldMatrix(stored)
        file = SlabFile(self._file.dtype)
        file.append(self.n, (self._unscaled(chunk).cpu() for chunk in self.chunks(index)))
        return FileMatrix(
            file,
            len(index),
            dtype=self.dtype,
            device=self.device,
            scales=self._scales,
            room=self.room,
        )

    def _unscaled(self, columns: Tensor) -> Tensor:
        return columns if self._scales is None else columns / self._scales

    def whole(self) -> Tensor:
        return self._read(0, self.p, torch.empty(self.p, self.n, dtype=self.dtype))


class FileTarget(Target):
    """A target that collects rows in memory until they fill a slab, and writes slabs to a file.

    Args:
        demand: the size of A.
        dtype: the type of the entries in the file.
        slab: the rows in a slab.
        room: the bytes that columns gathered from the matrix may take in memory.
    """

    def __init__(self, demand: Demand, *, dtype: torch.dtype, slab: int, room: int) -> None:
        super().__init__(0, demand.columns)
        self.most_rows = slab
        self._demand, self._room = demand, room
        self._file = SlabFile(dtype)
        self._scales: list[Tensor] = []
        self._slab = torch.empty(demand.columns, slab, dtype=demand.dtype, device=demand.device)
        self._done = self._begun = 0

    def begin(self, rows: int) -> Place:
        if self._done + rows > self.most_rows:
            self._write_slab()
        self._begun = self._done + rows
        return Place(self._slab[:, self._done : self._begun])

    def end(self) -> None:
        self._done = self._begun

    def _write_slab(self) -> None:
        columns = self._slab[:, : self._done]
        if self._file.dtype.itemsize < 4:
            self._scales.append(row_scales(columns))
            columns.div_(self._scales[-1])
        parts = torch.split(columns, _columns_in(PIECE_BYTES, self._done, columns.dtype))
        self._file.append(self._done, (part.cpu() for part in parts))
        self._done = 0

    def matrix(self, again: Callable[[Target], None]) -> FileMatrix:
        self._write_slab()
        return FileMatrix(
            self._file,
            self.last,
            dtype=self._demand.dtype,
            device=self._demand.device,
            scales=torch.cat(self._scales) if self._scales else None,
            room=self._room,
        )


def _columns_in(count: int, rows: int, dtype: torch.dtype) -> int:
    """Return the number of columns with `rows` entries that take `count` bytes, at least one."""
    return max(1, count // max(1, rows * dtype.itemsize))
