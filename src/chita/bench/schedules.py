"""fig:training_loss: the accuracy of CHITA++ after each stage, for three sparsity schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from chita.bench.average import average
from chita.bench.benchmark import Bench
from chita.bench.cells import Cell, Record
from chita.bench.panels import draw_lines
from chita.bench.stages import run_stages
from chita.bench.write import Report, Row, as_markdown
from chita.evaluate import accuracy
from chita.schedule import sparsities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MESHES = ("exponential", "linear", "constant")
RIDGE = {"mlpnet": 1e-3, "resnet20": 1e-2}
EXPLANATION = """\
The paper draws this for ResNet20 without stating figures. What it says of them: the linear mesh is
ahead of the exponential one in the first stages and drops in the last two; the exponential mesh,
whose steps are small where sparsity is high, ends best."""


@dataclass(frozen=True)
class Schedules:
    """ResNet20 to 90 % in 15 stages, as in the paper."""

    stages: int = 15
    samples: int = 1000
    batch: int = 16
    start: float = 0.2
    target: float = 0.9

    def cells(self, bench: Bench) -> list[Cell]:
        subject = bench.subject("resnet20")

        def cell(seed: int, mesh: str) -> Cell:
            plan = sparsities(mesh, self.target, stages=self.stages, start=self.start, hold=0.0)
            key = {
                "bench": "schedules",
                "network": subject.name,
                "schedule": mesh,
                "seed": seed,
                "lam": RIDGE[subject.network.name],
                **vars(self),
            }

            def compute() -> dict[str, Any]:
                models = run_stages(
                    subject,
                    seed,
                    plan,
                    samples=self.samples,
                    batch=self.batch,
                    lam=RIDGE[subject.network.name],
                    alpha=1 / self.batch,
                )
                return {
                    "sparsities": plan,
                    "accuracies": [accuracy(m, subject.test) for m in models],
                }

            return Cell(key, compute)

        return [cell(seed, mesh) for seed, mesh in product(range(bench.seeds), MESHES)]

    def report(self, records: Sequence[Record]) -> Report:
        rows = average(_by_stage(records), ("network", "schedule", "stage", "sparsity"), "accuracy")
        return Report(
            title=f"CHITA++ to {self.target:.0%} in {self.stages} stages: accuracy after each",
            rows=rows,
            text=f"{EXPLANATION}\n\n{as_markdown(rows)}",
            draw=lambda figure: _draw(figure, rows),
        )


def _by_stage(records: Sequence[Record]) -> list[Record]:
    """A record for each stage."""
    return [
        {
            "key": {**record["key"], "stage": stage, "sparsity": round(sparsity, 4)},
            "accuracy": figure,
        }
        for record in records
        for stage, (sparsity, figure) in enumerate(
            zip(record["sparsities"], record["accuracies"], strict=True), start=1
        )
    ]


def _draw(figure: Figure, rows: Sequence[Row]) -> None:
    """The schedules (fig:iter_schedules) and the accuracies along them."""
    figure.set_size_inches(11, 4)
    plans, results = figure.subplots(1, 2)
    flat = [{**row, "standard_error": None} for row in rows]
    draw_lines(plans, flat, line="schedule", x="stage", y="sparsity")
    draw_lines(results, rows, line="schedule", x="stage", y="accuracy")
