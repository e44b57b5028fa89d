"""Time and objective of each method on the same A at 90 % sparsity (fig:runtime).

The time is that of the solve only; A is computed once. The objective is that of problem
(main-problem) without the first-order term and is the same for all methods.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from chita.deploy.timing import timed
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.contenders import Contender, as_published, contenders
from chita.paper.network_problem import NetworkProblem, trained_problem
from chita.paper.networks import IMAGENET_CHECKPOINTS, Subject
from chita.paper.settings import version_key
from chita.paper.write import Report, Row, as_markdown
from chita.report import published as paper
from chita.solver.solve import Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONG = 60.0  # stop repeating a method after this many seconds in total
REFERENCE = paper.NAMES["chita-bso"]
STATED = {  # the paper's statements on these times
    "M-FAC as published": f"up to {paper.MFAC_TO_CHITA} times CHITA",
    "WF as published": f"at least {paper.WOODFISHER_TO_MFAC} times M-FAC",
    "CBS": f"at least {paper.WOODFISHER_TO_MFAC} times M-FAC",
}


@dataclass(frozen=True)
class Runtime:
    """All methods on both networks at one sparsity; times are medians over `repeats` runs."""

    samples: int = 1000
    sparsity: float = 0.9
    lam: float = 1e-3
    repeats: int = 3
    quick: bool = False

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the cells for one seed; times do not depend on the seed."""

        @lru_cache(maxsize=1)
        def problem_of(subject: Subject) -> NetworkProblem:
            return trained_problem(subject, seed=0, samples=self.samples)

        def cell(subject: Subject, contender: Contender) -> Cell:
            key = {
                "bench": "runtime",
                "network": subject.name,
                "method": contender.name,
                "block_size": contender.block_size,
                "device": subject.device.type,
                "samples": self.samples,
                "sparsity": self.sparsity,
                "lam": self.lam,
                **version_key(contender.method.name),
            }

            def compute() -> dict[str, Any]:
                problem = problem_of(subject)
                problem.local(contender.method.curvature)  # before the clock starts
                return measure(
                    lambda: problem.solve(
                        contender.method,
                        sparsity=self.sparsity,
                        lam=self.lam,
                        block_size=contender.block_size,
                        drop_dead=False,  # all methods solve the same problem
                    ),
                    repeats=self.repeats,
                    device=subject.device,
                )

            return Cell(key, compute)

        return [
            cell(subject, contender)
            for subject in bench.subjects.values()
            if subject.name not in IMAGENET_CHECKPOINTS  # their A does not fit into memory
            for contender in (*contenders(subject.network.name, quick=self.quick), *as_published())
        ]

    def report(self, records: Sequence[Record]) -> Report:
        reference = {
            record["key"]["network"]: record["seconds"]
            for record in records
            if record["key"]["method"] == REFERENCE
        }
        rows = [_row(record, reference) for record in records]
        return Report(
            title=f"Seconds of a solve at {self.sparsity:.0%} sparsity (n = {self.samples})",
            rows=rows,
            text=as_markdown(rows),
            draw=lambda figure: _draw(figure, rows),
        )


def measure(solve: Callable[[], Solution], *, repeats: int, device: torch.device) -> dict[str, Any]:
    """Return the median time of a solve, the number of runs and the final objective."""
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < LONG:
        solution, taken = timed(solve, device)
        seconds.append(taken)
    return {
        "seconds": statistics.median(seconds),
        "runs": len(seconds),
        "objective": solution.objective,
        "threads": torch.get_num_threads(),
    }


def _row(record: Record, reference: dict[str, float]) -> Row:
    key, base = record["key"], reference.get(record["key"]["network"])
    return {
        "network": key["network"],
        "method": key["method"],
        "block_size": key["block_size"],
        "seconds": record["seconds"],
        "runs": record["runs"],
        "times_chita": None if base is None else record["seconds"] / base,
        "objective": record["objective"],
        "paper": STATED.get(key["method"]),
    }


def _draw(figure: Figure, rows: Sequence[Row]) -> None:
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure.set_size_inches(6.4 * len(networks), 4.8)
    for place, network in enumerate(networks, start=1):
        axes = figure.add_subplot(1, len(networks), place)
        bars = sorted(
            (row for row in rows if row["network"] == network), key=lambda row: -row["seconds"]
        )
        drawn = axes.barh([row["method"] for row in bars], [row["seconds"] for row in bars])
        axes.bar_label(drawn, [f"{row['seconds']:.3g}" for row in bars], padding=3)
        axes.set(xscale="log", xlabel="seconds", title=network)
        axes.margins(x=0.15)
