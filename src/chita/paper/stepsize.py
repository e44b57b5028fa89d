"""The curve g(tau) = Q(P_k(w - tau grad Q(w))) of an IHT update on a random problem (fig:stepsize).

The size is n = 100, p = 200, k = 10. The report lists the pieces of the curve (the support is
constant on each), the first breaking point tau_c, the optimum tau_m of the first piece and the step
size that algorithm 2 chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.write import Report, as_markdown
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Iterate, Problem
from chita.solver.stepsize import Path, paper_step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REACH = 2  # the curve ends at this multiple of max(tau_c, the step of algorithm 2)


@dataclass(frozen=True)
class StepSize:
    """The curve at `points` values of tau, for each seed."""

    points: int = 2000

    def cells(self, bench: Bench) -> list[Cell]:
        def cell(seed: int) -> Cell:
            key = {"bench": "stepsize", "seed": seed, "points": self.points}
            return Cell(key, lambda: curve(random_problem(seed), k=10, points=self.points))

        return [cell(seed) for seed in range(bench.seeds)]

    def report(self, records: Sequence[Record]) -> Report:
        rows = [
            {"seed": record["key"]["seed"], "tau": tau, "objective": g, "piece": piece}
            for record in records
            for tau, g, piece in zip(record["tau"], record["g"], record["piece"], strict=True)
        ]
        return Report(
            title="g(tau) for n = 100, p = 200, k = 10",
            rows=rows,
            text=f"{_EXPLANATION}\n\n{as_markdown([_summary(record) for record in records])}",
            draw=lambda figure: _draw(figure, records[0]),
        )


_EXPLANATION = """\
The paper shows one such curve without numbers: it is piecewise quadratic, not convex, and decreases
beyond its first breaking point tau_c. tau_m is the optimum of the quadratic function of the first
piece. Algorithm 2 takes the step tau_m if tau_m < tau_c; otherwise it starts at tau_c and
multiplies the step by 1.5 as long as g decreases. "best" is the lowest g on the curve."""


def random_problem(seed: int, *, n: int = 100, p: int = 200) -> Problem:
    """Return a problem with Gaussian A and w0 in float64 and a first-order term for m = 1."""
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(n, p, generator=generator, dtype=torch.float64)
    w0 = torch.randn(p, generator=generator, dtype=torch.float64)
    return Problem.build(HeldMatrix(A.t().contiguous()), w0, lam=1e-3, alpha=1.0)


def curve(problem: Problem, *, k: int, points: int) -> dict[str, Any]:
    """Return g on a mesh of tau, the piece number of each point, and the step of algorithm 2."""
    path = Path(problem, problem.start(k), k)
    tau_c, tau_m = path.first_breaking_point(), path.first_piece_optimum()
    chosen = _step_taken(path)
    mesh = torch.linspace(0, REACH * max(tau_c, chosen), points, dtype=torch.float64).tolist()
    found = [path.at(tau) for tau in mesh]
    return {
        "tau": mesh,
        "g": [point.objective for point in found],
        "piece": _pieces(found),
        "tau_c": tau_c,
        "tau_m": tau_m,
        "chosen": chosen,
        "g_tau_c": path.at(tau_c).objective,
        "g_chosen": path.at(chosen).objective,
    }


class _Recorded(Path):
    """A path that records which of its points were evaluated."""

    def __init__(self, problem: Problem, x: Iterate, k: int) -> None:
        super().__init__(problem, x, k)
        self.asked: list[tuple[float, Iterate]] = []

    def at(self, tau: float) -> Iterate:
        point = super().at(tau)
        self.asked.append((tau, point))
        return point


def _step_taken(path: Path) -> float:
    """Return the step size tau that algorithm 2 chooses."""
    recorded = _Recorded(path.problem, path.x, path.k)
    end = paper_step(Options().gamma)(recorded)
    return next(tau for tau, point in recorded.asked if point is end)


def _pieces(points: Sequence[Iterate]) -> list[int]:
    """Return the piece number of each point; a change of the support starts the next piece."""
    numbers = [1]
    for before, after in pairwise(points):
        numbers.append(numbers[-1] + (not torch.equal(before.support, after.support)))
    return numbers


def _summary(record: Record) -> dict[str, Any]:
    return {
        "seed": record["key"]["seed"],
        "tau_c": record["tau_c"],
        "tau_m": record["tau_m"],
        "step taken": record["chosen"],
        "g(0)": record["g"][0],
        "g(tau_c)": record["g_tau_c"],
        "g(step taken)": record["g_chosen"],
        "best": min(record["g"]),
        "pieces": record["piece"][-1],
    }


def _draw(figure: Figure, record: Record) -> None:
    axes = figure.add_subplot()
    axes.plot(record["tau"], record["g"], linewidth=1.2)
    marks = (
        ("first breaking point", "tau_c", "g_tau_c", "k^"),
        ("step", "chosen", "g_chosen", "C3o"),
    )
    for label, tau, g, style in marks:
        axes.plot(record[tau], record[g], style, markersize=7, label=label)
    axes.set(xlabel="tau", ylabel="g(tau)")
    axes.grid(alpha=0.3)
    axes.legend()
