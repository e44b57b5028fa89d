"""The effect of the ridge term on MLPNet (fig:ridge).

Without a ridge term the weights move far away from the trained ones, where the quadratic model is
not accurate. Plain IHT moves there step by step. CHITA-CD moves there in one step, because it
minimises over one weight at a time and nothing bounds the weights of nearly zero columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from chita.curvature.fisher import Fisher
from chita.methods import METHODS, Method
from chita.model.accuracy import accuracy
from chita.paper.average import average
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.network_problem import NetworkProblem, trained_problem
from chita.paper.panels import draw_lines
from chita.paper.settings import version_key
from chita.paper.write import Report, Row, as_markdown
from chita.report import published as paper
from chita.solver.options import Options
from chita.solver.solve import ALGORITHMS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = {"IHT": Method("iht", Fisher, ALGORITHMS["iht"]), "CHITA-CD": METHODS["chita-cd"]}
EXPLANATION = f"""\
The paper shows these figures without numbers except for the last one: on MLPNet a well-tuned ridge
gains about {paper.RIDGE_GAIN:g} points. "iterations" are IHT updates; CHITA-CD adds sweeps of
coordinate descent after every fifth update. The runs include the first-order term (alpha = 1); the
search for the best ridge does not (alpha = 0), because a single stage is more accurate without
it."""


@dataclass(frozen=True)
class RidgeEffect:
    """Accuracy and distance during runs at `sparsity`, and the best ridge at several sparsities."""

    samples: int = 1000
    sparsity: float = 0.98
    ridge: float = 1e-2
    iterations: Sequence[int] = (0, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    sparsities: Sequence[float] = paper.SPARSITIES["mlpnet"]
    ridges: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)

    def cells(self, bench: Bench) -> list[Cell]:
        subject = bench.subject("mlpnet")

        @lru_cache(maxsize=1)
        def problem_of(seed: int) -> NetworkProblem:
            return trained_problem(subject, seed, samples=self.samples)

        def cell(
            seed: int, run: str, sparsity: float, ridge: float, iterations: int | None
        ) -> Cell:
            alpha = 0.0 if iterations is None else 1.0
            key = {
                "bench": "ridge",
                "network": subject.name,
                "run": run,
                "sparsity": sparsity,
                "ridge": ridge,
                "alpha": alpha,
                "iterations": iterations,  # None for the default of the method
                "samples": self.samples,
                "seed": seed,
                **version_key(RUNS[run].name),
            }

            def compute() -> dict[str, Any]:
                along = None if iterations is None else Options(iterations=iterations, tol=0.0)
                problem = problem_of(seed)
                w = problem.solve(
                    RUNS[run], sparsity=sparsity, lam=ridge, alpha=alpha, options=along
                ).w
                with problem.weights.temporarily(w):
                    return {
                        "accuracy": accuracy(problem.model, subject.test),
                        "distance": float((w - problem.w0).norm()),
                    }

            return Cell(key, compute)

        along_runs = [
            cell(seed, run, self.sparsity, ridge, iterations)
            for seed in range(bench.seeds)
            for run in RUNS
            for ridge in (0.0, self.ridge)
            for iterations in self.iterations
        ]
        at_the_end = [
            cell(seed, "CHITA-CD", sparsity, ridge, None)
            for seed in range(bench.seeds)
            for sparsity in self.sparsities
            for ridge in (0.0, *self.ridges)
        ]
        return along_runs + at_the_end

    def report(self, records: Sequence[Record]) -> Report:
        along = [_named(record) for record in records if record["key"]["iterations"] is not None]
        ends = [record for record in records if record["key"]["iterations"] is None]
        by = ("network", "run", "sparsity", "ridge", "alpha", "iterations")
        rows = [
            {**mean, "distance": distance["distance"]}
            for mean, distance in zip(
                average(records, by, "accuracy"), average(records, by, "distance"), strict=True
            )
        ]
        gains = _gains(ends)
        tables = [as_markdown(table) for table in (gains, rows) if table]
        return Report(
            title=f"With and without ridge, {self.sparsity:.0%} sparse",
            rows=rows,
            text="\n\n".join([EXPLANATION, *tables]),
            draw=lambda figure: _draw(figure, along, gains),
        )


def _named(record: Record) -> Record:
    key = record["key"]
    name = (
        f"{key['run']}, {'lambda = ' + format(key['ridge'], 'g') if key['ridge'] else 'no ridge'}"
    )
    return {**record, "key": {**key, "line": name}}


def _gains(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the accuracy of the best ridge and of no ridge at each sparsity (fig:ridge3)."""
    rows = average(records, ("sparsity", "ridge"), "accuracy")
    gains = []
    for sparsity in dict.fromkeys(row["sparsity"] for row in rows):
        at = [row for row in rows if row["sparsity"] == sparsity]
        without = [row["accuracy"] for row in at if row["ridge"] == 0]
        best = max(
            (row for row in at if row["ridge"] > 0),
            key=lambda row: float(row["accuracy"]),
            default=None,
        )
        if without and best:
            gains.append(
                {
                    "sparsity": sparsity,
                    "no ridge": without[0],
                    "best ridge": best["accuracy"],
                    "lambda": best["ridge"],
                    "gain": best["accuracy"] - without[0],
                }
            )
    return gains


def _draw(figure: Figure, along: Sequence[Record], gains: Sequence[Row]) -> None:
    figure.set_size_inches(15, 4)
    accuracies, distances, ends = figure.subplots(1, 3)
    for axes, quantity in ((accuracies, "accuracy"), (distances, "distance")):
        rows = average(along, ("line", "iterations"), quantity)
        draw_lines(axes, rows, line="line", x="iterations", y=quantity)
        axes.set_xscale("symlog", linthresh=5)
    distances.set_yscale("log")
    both = [
        {"line": choice, "sparsity": row["sparsity"], "accuracy": row[choice]}
        for choice in ("no ridge", "best ridge")
        for row in gains
    ]
    draw_lines(ends, both, line="line", x="sparsity", y="accuracy")
