"""The memory budget: where A is stored so that the process stays within it at the least cost."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from time import perf_counter

import torch

from chita.errors import ChitaError
from chita.solver.matrix.file import PIECE_BYTES, FileTarget
from chita.solver.matrix.half import BUFFER_BYTES
from chita.solver.matrix.held import hold
from chita.solver.matrix.memory import format_bytes, resident_bytes
from chita.solver.matrix.recomputed import WindowTarget
from chita.solver.matrix.target import Demand, Store, Target

logger = logging.getLogger(__name__)


PROBE = 32 << 20  # bytes written and read to time the disk


@dataclass(frozen=True)
class Disk:
    """The disk of TMPDIR.

    Attributes:
        free: bytes.
        write: bytes a second.
        read: bytes a second.
    """

    free: int
    write: float
    read: float


def temporary_folder() -> str:
    """Where temporary files go; a TMPDIR that cannot be used is told of, and not used."""
    try:
        folder = gettempdir()
    except FileNotFoundError as error:
        raise ChitaError(
            f"A does not fit into memory, and there is nowhere else: {error}"
        ) from error
    asked = os.environ.get("TMPDIR")
    if asked and not (Path(asked).exists() and Path(asked).samefile(folder)):
        logger.warning("TMPDIR=%s cannot be written to: temporary files go to %s", asked, folder)
    return folder


def probe_disk() -> Disk:
    """Write a small file through to the disk, and read it back from there if that can be had."""
    free = shutil.disk_usage(temporary_folder()).free
    if free < PROBE:
        return Disk(free, 1.0, 1.0)
    with TemporaryFile(buffering=0) as file:
        began = perf_counter()
        file.write(bytes(PROBE))
        os.fsync(file.fileno())
        written = perf_counter()
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        middle = perf_counter()
        file.readall()
        end = perf_counter()
    return Disk(free, PROBE / (written - began), PROBE / (end - middle))


# What was measured, in the units that memory grows by (benchmarks/memory.py).
LIBRARIES = 64 << 20  # what libraries take when they are first used
PASS = 3  # a pass over samples takes so many times what autograd keeps of a chunk
VECTORS = 16  # over all columns, that a solve without blocks has at its peak, and the model's own
BLOCK_VECTORS = 12  # and one with blocks
SQUARES = 4  # n x n matrices in float64
BATCHES = 4  # the columns of a batch of blocks, and copies and products of their size
PIECES = 3  # of the file in memory: as it is read, put together, and picked from
SLAB = 64  # rows that wait to be written, at most: more would not be read any faster
PASSES = 6  # over all columns, that a solve without blocks makes


@dataclass(frozen=True)
class Work:
    """What is done with A.

    Attributes:
        kept: k, the columns of the support.
        active: the columns of the active set, which are copied from A; 0 if there is none.
        batch: columns in a batch of blocks; None without blocks.
        solves: how often the problem is solved; with blocks, the passes over A that this takes.
        beside: bytes that the solver needs for itself, beside vectors and columns.
    """

    kept: int
    active: int = 0
    batch: int | None = None
    solves: int = 1
    beside: int = 0


@dataclass(frozen=True)
class Plan:
    """One way to store A.

    Attributes:
        what: in words, for the log.
        least: bytes of memory beyond what the process has, without which it cannot be done.
        most: the bytes it will take at its peak.
        seconds: it will take.
        make: the target of a stage.
    """

    what: str
    least: int
    most: int
    seconds: float
    make: Store


@dataclass
class Planner:
    """Given what A demands, picks the plan that fits and takes the least time.

    It decides once, for all stages of a run: what the first of them leaves in memory was counted
    in its plan, and is not counted again.

    Attributes:
        budget: the bytes that the whole process may take; on a GPU, what it may take there.
        work: what is done with A.
        dtype: to store A in; None for that of the gradients.
    """

    budget: int
    work: Work
    dtype: torch.dtype | None = None
    _decided: Plan | None = field(default=None, init=False)

    def __call__(self, demand: Demand) -> Target:
        if self._decided is None:
            self._decided = self._decide(demand)
        return self._decided.make(demand)

    def _decide(self, demand: Demand) -> Plan:
        used = resident_bytes(demand.device)
        free = self.budget - used
        held = self._held(demand)
        if held.least <= free:
            return self._chosen(held, demand, used)
        disk = probe_disk()
        others = [plan for plan in (self._spilled(demand, free, disk),) if plan is not None]
        if self.work.batch is not None:
            others.append(self._recomputed(demand, free))
        fitting = [plan for plan in others if plan.least <= free]
        if not fitting:
            least = used + min(plan.least for plan in (held, *others))
            raise ChitaError(
                f"memory={format_bytes(self.budget)} is too little: at least "
                f"{format_bytes(least)} are needed, of which the process has taken "
                f"{format_bytes(used)} already. A itself is {format_bytes(demand.matrix_bytes)}; "
                f"{format_bytes(disk.free)} are free in {gettempdir()}"
            )
        return self._chosen(min(fitting, key=lambda plan: plan.seconds), demand, used)

    def _chosen(self, plan: Plan, demand: Demand, used: int) -> Plan:
        logger.info(
            "A (%d x %d, %s) is %s: about %.0f s, at most %s of memory=%s",
            demand.rows,
            demand.columns,
            format_bytes(self._stored(demand)),
            plan.what,
            plan.seconds,
            format_bytes(used + plan.most),
            format_bytes(self.budget),
        )
        return plan

    def _held(self, demand: Demand) -> Plan:
        waiting = 0 if self.dtype is None else BUFFER_BYTES
        solve = self._solve(demand) + 2 * self.work.active * self._column(demand)
        most = self._stored(demand) + max(_pass(demand, demand.chunk) + waiting, solve)
        make = partial(hold, self.dtype)
        return Plan("held in memory", most, most, _gradients(demand), make)

    def _spilled(self, demand: Demand, free: int, disk: Disk) -> Plan | None:
        """None if the disk has no room."""
        row, solve = demand.vector_bytes, self._solve(demand)
        if self.work.batch is None:
            solve += PIECES * PIECE_BYTES
        writing = PIECE_BYTES  # a part of a slab that is not full is copied
        few = (free - writing - _pass(demand, 0)) // (row + PASS * demand.row_bytes)
        many = (free - writing - _pass(demand, demand.chunk)) // row
        slab = max(1, min(demand.rows, SLAB, max(min(few, demand.chunk), many)))
        room = max(0, free - solve)
        gathered = max(2 * self.work.active, self.work.kept) * demand.column_bytes
        stored = self._stored(demand)
        again = gathered if gathered > room else 0
        if stored + again > disk.free:
            return None
        reading = (PASSES * stored if self.work.batch is None else stored) / disk.read
        return Plan(
            f"written to a file in {gettempdir()}, {slab} rows at a time",
            least=max(_pass(demand, 1) + row + writing, solve),
            most=max(
                _pass(demand, min(slab, demand.chunk)) + slab * row + writing,
                solve + min(room, gathered - again),
            ),
            seconds=_gradients(demand) + stored / disk.write + self.work.solves * reading,
            make=partial(FileTarget, dtype=self.dtype or demand.dtype, slab=slab, room=room),
        )

    def _recomputed(self, demand: Demand, free: int) -> Plan:
        """For solvers with blocks; windows are held in the precision of the gradients."""
        samples = demand.rows * demand.sample_bytes
        beside = self._solve(demand) + _pass(demand, demand.chunk) + samples
        batch = self.work.batch or 1
        width = max(batch, (free - beside) // demand.column_bytes)
        windows = -(-demand.columns // max(1, width - batch))
        return Plan(
            f"computed anew for each of {windows} windows of columns",
            least=beside + batch * demand.column_bytes,
            most=beside + min(width, demand.columns) * demand.column_bytes,
            seconds=windows * self.work.solves * _gradients(demand),
            make=partial(WindowTarget, width=width),
        )

    def _stored(self, demand: Demand) -> int:
        """Bytes of A as it is stored."""
        return demand.columns * self._column(demand)

    def _column(self, demand: Demand) -> int:
        return demand.rows * (self.dtype or demand.dtype).itemsize

    def _solve(self, demand: Demand) -> int:
        """Bytes that a solve takes beside A and the columns gathered from it."""
        beside = LIBRARIES + self.work.beside + SQUARES * 8 * demand.rows**2
        if self.work.batch is None:
            return VECTORS * demand.vector_bytes + beside
        batch = BATCHES * self.work.batch * demand.column_bytes
        return BLOCK_VECTORS * demand.vector_bytes + batch + beside


def _pass(demand: Demand, rows: int) -> int:
    """Bytes that a pass over the samples takes, in chunks of so many rows, beside A itself."""
    return LIBRARIES + demand.vector_bytes + PASS * rows * demand.row_bytes


def _gradients(demand: Demand) -> float:
    """Seconds of a pass."""
    return demand.rows * demand.row_seconds
