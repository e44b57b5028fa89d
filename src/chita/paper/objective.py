"""The objective Q of problem (main-problem) against sparsity, for every method (fig:resnet50_obj).

All methods use the same A, lambda and samples. The problem has no first-order term, because most
methods do not support one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from chita.paper.added_methods import source_key
from chita.paper.average import average
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.contenders import Contender, contenders
from chita.paper.network_problem import NetworkProblem, trained_problem
from chita.paper.networks import IMAGENET_CHECKPOINTS, Subject
from chita.paper.panels import draw_lines
from chita.paper.write import Report, Row, as_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPLANATION = """\
The paper shows this figure for ResNet50 without numbers: at every sparsity, CHITA's objective is
below M-FAC's, which is below that of magnitude pruning. Lower is better."""


@dataclass(frozen=True)
class Objective:
    """The objective of all methods on both networks at several sparsities."""

    sparsities: Sequence[float] = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
    samples: int = 1000
    lam: float = 1e-3
    quick: bool = False

    def cells(self, bench: Bench) -> list[Cell]:
        @lru_cache(maxsize=1)
        def problem_of(subject: Subject, seed: int) -> NetworkProblem:
            return trained_problem(subject, seed, samples=self.samples)

        def cell(subject: Subject, seed: int, contender: Contender, sparsity: float) -> Cell:
            key = {
                "bench": "objective",
                "network": subject.name,
                "method": contender.name,
                "sparsity": sparsity,
                "seed": seed,
                "samples": self.samples,
                "lam": self.lam,
                "block_size": contender.block_size,
                **source_key(contender.method),
            }

            def compute() -> dict[str, Any]:
                solution = problem_of(subject, seed).solve(
                    contender.method,
                    sparsity=sparsity,
                    lam=self.lam,
                    block_size=contender.block_size,
                    drop_dead=False,  # all methods solve the same problem
                )
                return {"objective": solution.objective}

            return Cell(key, compute)

        return [
            cell(subject, seed, contender, sparsity)
            for seed in range(bench.seeds)
            for subject in bench.subjects.values()
            if subject.name not in IMAGENET_CHECKPOINTS  # their A does not fit into memory
            for contender in contenders(subject.network.name, quick=self.quick)
            for sparsity in self.sparsities
        ]

    def report(self, records: Sequence[Record]) -> Report:
        rows = average(records, ("network", "method", "sparsity"), "objective")
        return Report(
            title=f"The objective against sparsity (n = {self.samples}, lambda = {self.lam:g})",
            rows=rows,
            text=f"{EXPLANATION}\n\n{as_markdown(rows)}",
            draw=lambda figure: _draw(figure, rows),
        )


def _draw(figure: Figure, rows: Sequence[Row]) -> None:
    networks = list(dict.fromkeys(row["network"] for row in rows))
    methods = [row["method"] for row in rows]
    figure.set_size_inches(7.6 * len(networks), 4.8)
    for place, network in enumerate(networks, start=1):
        axes = figure.add_subplot(1, len(networks), place)
        of_network = [row for row in rows if row["network"] == network]
        draw_lines(axes, of_network, line="method", x="sparsity", y="objective", names=methods)
        axes.set(yscale="log", title=network)
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
