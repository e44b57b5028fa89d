"""g(tau) = Q(P_k(w - tau grad Q(w))) along an IHT update (fig:stepsize): n = 100, p = 200, k = 10.

The problem is random. Beside the curve stand its pieces, on each of which the support stays, the
first breaking point tau_c, the optimum tau_m of the first piece, and the step algorithm 2 takes.
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
from chita.solver.matrix.held import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Iterate, Problem
from chita.solver.stepsize import Path, paper_step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REACH = 2  # the curve goes so many times beyond the longer of tau_c and the step taken


@dataclass(frozen=True)
class StepSize:
    """The curve at `points` values of tau for each seed."""

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
The paper shows one such curve without figures: piecewise quadratic, not convex, falling beyond its
first breaking point tau_c. tau_m is the optimum of the first piece, were it to go on; algorithm 2
takes it if it comes before tau_c, and else grows the step by 1.5 from tau_c while g falls. "Best"
is the lowest g on the curve."""


def random_problem(seed: int, *, n: int = 100, p: int = 200) -> Problem:
    """Gaussian A and w0, in float64, with the first-order term of m = 1."""
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(n, p, generator=generator, dtype=torch.float64)
    w0 = torch.randn(p, generator=generator, dtype=torch.float64)
    return Problem.build(HeldMatrix(A.t().contiguous()), w0, lam=1e-3, alpha=1.0)


def curve(problem: Problem, *, k: int, points: int) -> dict[str, Any]:
    """g on a mesh of tau, the number of each point's piece, and the step of algorithm 2."""
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
    """A path that knows which of its points have been asked for."""

    def __init__(self, problem: Problem, x: Iterate, k: int) -> None:
        super().__init__(problem, x, k)
        self.asked: list[tuple[float, Iterate]] = []

    def at(self, tau: float) -> Iterate:
        point = super().at(tau)
        self.asked.append((tau, point))
        return point


def _step_taken(path: Path) -> float:
    """The tau of the point that algorithm 2 ends at."""
    recorded = _Recorded(path.problem, path.x, path.k)
    end = paper_step(Options().gamma)(recorded)
    return next(tau for tau, point in recorded.asked if point is end)


def _pieces(points: Sequence[Iterate]) -> list[int]:
    """The number of each point's piece, counted from 1 by the changes of the support."""
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
