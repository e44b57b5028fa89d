"""The first-order term of CHITA++ on MLPNet, scaled by 1/m, 1 and 0 (fig:first_order_term)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from chita import data
from chita.model.accuracy import accuracy
from chita.paper.average import average
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.network_problem import trained_problem
from chita.paper.networks import Subject
from chita.paper.panels import draw_lines
from chita.paper.settings import version_key
from chita.paper.stages import run_stages
from chita.paper.traces import fisher_trace, hessian_trace
from chita.paper.write import Report, Row, as_markdown
from chita.pruning.schedule import sparsities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIDGE = 1e-3
SCALES = ("1/m", "1", "0")
PROBES = 10  # random vectors per thousand images for the trace of the Hessian
EXPLANATION = """\
The paper shows these figures without numbers. Its text states that alpha = 1/m is far better than
alpha = 1 if m is large, that accuracy grows with m, that for m above 1 the scaled term is better
than none (alpha = 0), and that the alpha of eq:estalpha is close to 1/m."""


@dataclass(frozen=True)
class FirstOrder:
    """CHITA++ to 95 % in 15 stages and the traces at the trained weights, for several m."""

    batches: Sequence[int] = (1, 2, 4, 8, 16, 32)
    samples: int = 1000
    stages: int = 15
    sparsity: float = 0.95
    trace_images: int = 10_000

    def cells(self, bench: Bench) -> list[Cell]:
        subject = bench.subject("mlpnet")
        return [
            cell
            for seed, m in product(range(bench.seeds), self.batches)
            for cell in (
                *(self._pruned(subject, seed, m, scale) for scale in SCALES),
                self._traces(subject, seed, m),
            )
        ]

    def _key(self, subject: Subject, seed: int, m: int) -> dict[str, Any]:
        return {
            "bench": "first-order",
            "network": subject.name,
            "m": m,
            "samples": self.samples,
            "lam": RIDGE,
            "seed": seed,
            **version_key("chita++"),
        }

    def _pruned(self, subject: Subject, seed: int, m: int, scale: str) -> Cell:
        def compute() -> dict[str, Any]:
            plan = sparsities("polynomial", self.sparsity, stages=self.stages, start=0.2, hold=0.0)
            alpha = 1 / m if scale == "1/m" else float(scale)
            *_, pruned = run_stages(
                subject, seed, plan, samples=self.samples, batch=m, lam=RIDGE, alpha=alpha
            )
            return {"accuracy": accuracy(pruned, subject.test)}

        key = {"alpha": scale, "stages": self.stages, "sparsity": self.sparsity}
        return Cell({**self._key(subject, seed, m), **key}, compute)

    def _traces(self, subject: Subject, seed: int, m: int) -> Cell:
        def compute() -> dict[str, Any]:
            problem = trained_problem(subject, seed, samples=self.samples, batch=m)
            images = data.Batches(
                subject.splits.train.shuffled(seed),
                1000,
                limit=self.trace_images,
                device=subject.device,
            )
            hessian = hessian_trace(
                problem.model, problem.weights, images, probes=PROBES, seed=seed
            )
            fisher = fisher_trace(problem.gradients.matrix.whole())
            return {"alpha": fisher / hessian, "fisher": fisher, "hessian": hessian}

        return Cell(
            {**self._key(subject, seed, m), "alpha": "traces", "images": self.trace_images}, compute
        )

    def report(self, records: Sequence[Record]) -> Report:
        pruned = [record for record in records if "accuracy" in record]
        traces = [record for record in records if "accuracy" not in record]
        estimates = {row["m"]: row["alpha"] for row in average(traces, ("m",), "alpha")}
        rows = [
            {**row, "one_over_m": 1 / row["m"], "estimated_alpha": estimates.get(row["m"])}
            for row in average(pruned, ("network", "m", "alpha"), "accuracy")
        ]
        return Report(
            title=f"CHITA++ to {self.sparsity:.0%} with the first-order term scaled by alpha",
            rows=rows,
            text=f"{EXPLANATION}\n\n{as_markdown(rows)}",
            draw=lambda figure: _draw(figure, rows, estimates),
        )


def _draw(figure: Figure, rows: Sequence[Row], estimates: Mapping[int, float]) -> None:
    figure.set_size_inches(11, 4)
    accuracies, alphas = figure.subplots(1, 2)
    sizes = list(dict.fromkeys(row["m"] for row in rows))
    draw_lines(accuracies, rows, line="alpha", x="m", y="accuracy")
    scales = {"1/m": {m: 1 / m for m in estimates}, "of the traces (eq:estalpha)": estimates}
    both = [
        {"line": name, "m": m, "alpha": alpha}
        for name, values in scales.items()
        for m, alpha in values.items()
    ]
    draw_lines(alphas, both, line="line", x="m", y="alpha")
    accuracies.legend(fontsize="small", title="alpha")
    alphas.set_yscale("log")
    for axes in (accuracies, alphas):
        axes.set_xscale("log")
        axes.set_xticks(sizes, [str(m) for m in sizes])
        axes.minorticks_off()
