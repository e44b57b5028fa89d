"""The interface of a benchmark: a list of cells, and a report on the computed ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from chita.errors import ChitaError
from chita.paper.cells import Cell, Cells, Record
from chita.paper.checkpoints import require_same_checkpoints
from chita.paper.networks import Subject
from chita.paper.selection import select_cells
from chita.paper.write import Report, write_report
from chita.report.published import EMBEDDED

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bench:
    """The networks and the number of seeds of a benchmark run.

    Attributes:
        subjects: the networks by name: those of the paper, or only the embedded MLPNet.
        seeds: the number of seeds that each figure is averaged over.
        device: the device that networks run on.
        folder: the output folder, for networks that the benchmark makes itself.
        texts: the folder of WikiText-2, if it is given.
    """

    subjects: dict[str, Subject]
    seeds: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    folder: Path = Path()
    texts: Path | None = None

    def subject(self, name: str) -> Subject:
        """Return the network of that name, or the embedded one if there are no checkpoints."""
        found = self.subjects.get(name) or self.subjects.get(EMBEDDED)
        if found is None:
            raise ChitaError(
                f"this benchmark needs the trained weights of {name} in --checkpoints; found only "
                f"{', '.join(self.subjects)}"
            )
        return found


class Benchmark(Protocol):
    """A table or figure of the paper, or a table that chita adds."""

    def cells(self, bench: Bench) -> list[Cell]:
        """Return all cells, in the order of computation."""
        ...  # pragma: no cover

    def report(self, records: Sequence[Record]) -> Report:
        """Return the table and the figure of the cells computed so far."""
        ...  # pragma: no cover


def run_benchmark(
    name: str, benchmark: Benchmark, bench: Bench, out: Path, only: Sequence[str] = ()
) -> None:
    """Compute the missing cells and write the report.

    The report is on all cells computed so far, also after an interruption.

    Args:
        name: the name of the benchmark.
        benchmark: the cells and the report.
        bench: the networks and the number of seeds.
        out: the output folder.
        only: values of the cells to compute (see `select_cells`); by default all cells.
    """
    kept, cells = Cells(out), benchmark.cells(bench)
    selected = select_cells(cells, only)
    require_same_checkpoints(bench.subjects, out)
    try:
        kept.compute(selected, name)
    finally:
        if records := kept.records(cells):
            _write(out, name, benchmark.report(records))


def _write(out: Path, name: str, report: Report) -> None:
    if report.rows:
        write_report(out, name, report)
    else:
        logger.warning("%s: a table needs more cells than those in %s", name, out)
