"""The memory budget: choose the fastest storage of A that keeps the process within it."""

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
from chita.solver.matrix.half_precision import BUFFER_BYTES, HalfTarget
from chita.solver.matrix.in_memory import Demand, HeldTarget, Store, Target
from chita.solver.matrix.memory import format_bytes, resident_bytes
from chita.solver.matrix.on_disk import PIECE_BYTES, FileTarget
from chita.solver.matrix.recomputed import WindowTarget

logger = logging.getLogger(__name__)


PROBE = 32 << 20  # bytes that are written and read to time the disk


@dataclass(frozen=True)
class Disk:
    """The disk of TMPDIR.

    Attributes:
        free: free bytes.
        write: bytes written per second.
        read: bytes read per second.
    """

    free: int
    write: float
    read: float


def temporary_folder() -> str:
    """Return the folder of temporary files; log a warning if TMPDIR cannot be used."""
    try:
        folder = gettempdir()
    except FileNotFoundError as error:
        raise ChitaError(
            f"A does not fit into memory, and no temporary folder can be used: {error}"
        ) from error
    asked = os.environ.get("TMPDIR")
    if asked and not (Path(asked).exists() and Path(asked).samefile(folder)):
        logger.warning("TMPDIR=%s is not writable: temporary files are in %s", asked, folder)
    return folder


def probe_disk() -> Disk:
    """Time the disk: write a small file through to it, and read it back, if possible uncached."""
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


# Measured by benchmarks/memory.py.
LIBRARIES = 64 << 20  # bytes that libraries allocate on first use
PASS = 3  # the memory of a pass over samples, relative to that of autograd for a chunk
VECTORS = 16  # vectors over all columns at the peak of a solve without blocks, the model included
BLOCK_VECTORS = 12  # the same for a solve with blocks
SQUARES = 4  # n x n matrices in float64
BATCHES = 4  # the columns of a batch of blocks, and copies and products of their size
PIECES = 3  # pieces of the file in memory: as it is read, assembled and gathered from
SLAB = 64  # the most rows in a slab: more would not make reading faster
PASSES = 6  # passes over all columns of a solve without blocks


@dataclass(frozen=True)
class Work:
    """The work of the solver on A.

    Attributes:
        kept: k, the columns of the support.
        active: the columns of the active set, which are copied from A; 0 without one.
        batch: the columns in a batch of blocks; None without blocks.
        solves: the number of solves; with blocks, the passes over A that they need.
        beside: the bytes that the solver needs in addition to vectors and columns.
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
        what: the description for the log.
        least: the bytes of memory that it needs in addition to those in use.
        most: the bytes that it takes at its peak.
        seconds: the estimated time.
        make: builds the target of a stage.
    """

    what: str
    least: int
    most: int
    seconds: float
    make: Store


@dataclass
class Planner:
    """Chooses the fastest plan that fits the budget.

    It decides once for all stages of a run, because memory that the first stage leaves allocated is
    part of its plan and must not be counted again.

    Attributes:
        budget: the bytes that the whole process may take, or on a GPU, its share of GPU memory.
        work: the work of the solver on A.
        dtype: the type in which A is stored; None for that of the gradients.
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
                f"{format_bytes(least)} are needed, of which the process already uses "
                f"{format_bytes(used)}. A itself is {format_bytes(demand.matrix_bytes)}; "
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
        """Return a plan that stores A in a file; None if the disk has too little space."""
        row, solve = demand.vector_bytes, self._solve(demand)
        if self.work.batch is None:
            solve += PIECES * PIECE_BYTES
        writing = PIECE_BYTES  # the copy of a part of a slab that is not full
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
        """Return a plan that recomputes A in windows, for solvers with blocks."""
        samples = demand.rows * demand.sample_bytes
        beside = self._solve(demand) + _pass(demand, demand.chunk) + samples
        batch = self.work.batch or 1
        width = max(batch, (free - beside) // demand.column_bytes)
        windows = -(-demand.columns // max(1, width - batch))
        return Plan(
            f"recomputed for each of {windows} windows of columns",
            least=beside + batch * demand.column_bytes,
            most=beside + min(width, demand.columns) * demand.column_bytes,
            seconds=windows * self.work.solves * _gradients(demand),
            make=partial(WindowTarget, width=width),
        )

    def _stored(self, demand: Demand) -> int:
        """Return the bytes of A as it is stored."""
        return demand.columns * self._column(demand)

    def _column(self, demand: Demand) -> int:
        return demand.rows * (self.dtype or demand.dtype).itemsize

    def _solve(self, demand: Demand) -> int:
        """Return the bytes that a solve needs in addition to A and the gathered columns."""
        beside = LIBRARIES + self.work.beside + SQUARES * 8 * demand.rows**2
        if self.work.batch is None:
            return VECTORS * demand.vector_bytes + beside
        batch = BATCHES * self.work.batch * demand.column_bytes
        return BLOCK_VECTORS * demand.vector_bytes + batch + beside


def _pass(demand: Demand, rows: int) -> int:
    """Return the bytes of a pass over the samples in chunks of `rows`, in addition to A."""
    return LIBRARIES + demand.vector_bytes + PASS * rows * demand.row_bytes


def _gradients(demand: Demand) -> float:
    """Return the seconds of a pass over the samples."""
    return demand.rows * demand.row_seconds


def hold(dtype: torch.dtype | None, demand: Demand) -> Target:
    """Return a target that holds A in memory, in half precision if `dtype` is given."""
    return HeldTarget(demand) if dtype is None else HalfTarget(demand, dtype)
