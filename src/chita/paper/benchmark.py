"""What a benchmark is: a list of cells, and a report on those that were computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chita.errors import ChitaError
from chita.paper.cells import Cell, Cells, Record
from chita.paper.networks import Subject
from chita.paper.write import Report, write_report
from chita.report.published import EMBEDDED


@dataclass(frozen=True)
class Bench:
    """What the cells are computed on.

    Attributes:
        subjects: the networks by name: the paper's, or the embedded MLPNet alone.
        seeds: how many seeds each figure is averaged over.
    """

    subjects: dict[str, Subject]
    seeds: int

    def subject(self, name: str) -> Subject:
        """The network of that name, or the embedded one in its place."""
        found = self.subjects.get(name) or self.subjects.get(EMBEDDED)
        if found is None:
            raise ChitaError(
                f"this benchmark is on {name}, whose trained weights --checkpoints must hold; "
                f"there are {', '.join(self.subjects)}"
            )
        return found


class Benchmark(Protocol):
    """One table or figure of the paper."""

    def cells(self, bench: Bench) -> list[Cell]:
        """All the work there is, in the order in which it is done."""
        ...  # pragma: no cover

    def report(self, records: Sequence[Record]) -> Report:
        """The table and the figure of the cells computed so far."""
        ...  # pragma: no cover


def run_benchmark(name: str, benchmark: Benchmark, bench: Bench, out: Path) -> None:
    """Compute what is missing and write the report; interrupted, write it on what is there."""
    kept, cells = Cells(out), benchmark.cells(bench)
    try:
        kept.compute(cells, name)
    finally:
        if records := kept.records(cells):
            write_report(out, name, benchmark.report(records))
