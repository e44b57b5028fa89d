"""How long the parts of the optimiser take, against the least that each has to do.

Every part and its bound are measured in turn in the same run, and the fastest of each counts, so
that the ratios hold on any machine. A is that of ResNet20 at 90 % sparsity, its gradients taken
with random images; the last item is the whole solver on a random n x 200,000 array.

A pass over a matrix is one product of it with a vector, the matrix lying in memory column by
column.

    python benchmarks/solver.py [--rows 1000] [--repeat 5]
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from chita.curvature.fisher import gradient_matrix
from chita.deploy.timing import timed
from chita.files.checkpoint import load_checkpoint
from chita.model.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.backsolve import backsolve
from chita.solver.coordinate_descent import CoordinateDescent
from chita.solver.iht import step_rule
from chita.solver.matrix.held import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Iterate, Problem
from chita.solver.solve import solve
from chita.solver.stepsize import Path as StepPath
from chita.zoo import NETWORKS

CHECKPOINT = Path(__file__).parents[1] / "../shared/checkpoints/resnet20_cifar10.safetensors"
LAMBDA = 1e-3
SPARSITY = 0.9
WIDTH = 200_000  # columns of the array that the whole solver is given

Task = Callable[[], object]


@dataclass(frozen=True)
class Item:
    """A part of the optimiser, the work that bounds it, and the ratio to stay within."""

    name: str
    task: Task
    bound_name: str
    bound: Task
    target: float


class CountedPath(StepPath):
    """A path that counts the points evaluated on it."""

    points = 0

    def at(self, tau: float) -> Iterate:
        self.points += 1
        return super().at(tau)


def main() -> None:
    """Measure every item and print a table."""
    parser = ArgumentParser(description="The parts of the optimiser against their bounds.")
    parser.add_argument("--rows", type=int, default=1000, help="n, the rows of A")
    parser.add_argument("--repeat", type=int, default=5, help="turns, of which the fastest counts")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(title=f"n = {arguments.rows} on {device}, {torch.get_num_threads()} threads")
    for heading in ("item", "time", "bound", "bound's time", "ratio", "target", "met"):
        table.add_column(heading, justify="left" if heading in ("item", "bound") else "right")
    for item in items(arguments.rows, device):
        time, bound = measure(item, arguments.repeat, device)
        ratio = time / bound
        table.add_row(
            item.name,
            f"{1e3 * time:.1f} ms",
            item.bound_name,
            f"{1e3 * bound:.1f} ms",
            f"{ratio:.2f}",
            f"{item.target:g}",
            "yes" if ratio <= item.target else "no",
        )
    Console(width=120).print(table)


def items(rows: int, device: torch.device) -> Iterator[Item]:
    """The items one after the other; each matrix is freed before the next is made."""
    problem = resnet20_problem(rows, device)
    yield from parts(problem, problem.start(int((1 - SPARSITY) * problem.matrix.p)))
    del problem
    yield whole(rows, device)


def resnet20_problem(rows: int, device: torch.device) -> Problem:
    """Problem (main-problem) on the gradients of ResNet20: the trained one where it is at hand."""
    generator = torch.Generator().manual_seed(0)
    network = NETWORKS["resnet20"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = network.build()
    if CHECKPOINT.exists():
        load_checkpoint(model, CHECKPOINT)
    images = torch.randn(rows, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (rows,), generator=generator)
    weights = Weights(model.to(device), include=network.prunable)
    stream = SampleStream([(images.to(device), labels.to(device))])
    matrix = gradient_matrix(model, weights, stream, rows=rows, batch=1).matrix
    return Problem.build(matrix, weights.vector(), lam=LAMBDA, alpha=1.0)


def parts(problem: Problem, x: Iterate) -> Iterator[Item]:
    """Backsolve, CD sweep and IHT iteration from the magnitude solution x."""
    matrix, kept = problem.matrix, problem.matrix.columns(x.support).whole()
    d_S, rho = (x.w - problem.w0)[x.support], x.rho
    yield Item(
        "backsolve: gather, Gram, solve",
        lambda: backsolve(forgetful(problem), x),
        "one A_S A_S^T",
        lambda: kept.t() @ kept,
        3,
    )
    descent = CoordinateDescent(problem, x.support)
    swept = descent.sweep(x)
    yield Item(
        "CD sweep after the first",
        lambda: descent.sweep(swept),
        "two passes over A_S",
        lambda: (kept @ rho, kept.t() @ d_S),
        2.5,
    )
    step = step_rule(problem, Options())
    moved = step(StepPath(problem, x, len(x.support)))
    counted = CountedPath(problem, moved, len(x.support))
    step(counted)
    yield Item(
        "IHT iteration",
        lambda: step(StepPath(problem, moved, len(x.support))),
        f"A^T r, {1 + counted.points} passes over A_S",
        lambda: (matrix.adjoint(rho), [kept.t() @ d_S for _ in range(1 + counted.points)]),
        2,
    )


def forgetful(problem: Problem) -> Problem:
    """The same problem on a matrix that remembers no Gram product."""
    return replace(problem, matrix=HeldMatrix(problem.matrix.whole()))


def whole(rows: int, device: torch.device) -> Item:
    """chita.solve with its defaults on an n x p array."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(rows, WIDTH, generator=generator).mul_(0.01).to(device)
    w0 = torch.randn(WIDTH, generator=generator).mul_(0.05).to(device)
    k = int((1 - SPARSITY) * WIDTH)
    support = solve(A, w0, k, lam=LAMBDA, alpha=1.0).support

    def gather_and_gram() -> object:
        gathered = A.index_select(1, support)
        return gathered @ gathered.t()

    return Item(
        f"solve, {rows} x {WIDTH:,}",
        lambda: solve(A, w0, k, lam=LAMBDA, alpha=1.0),
        "gather and A_S A_S^T",
        gather_and_gram,
        6,
    )


def measure(item: Item, repeat: int, device: torch.device) -> tuple[float, float]:
    """The seconds of the task and of its bound, taken in turn; the least of all turns."""
    pairs = [(timed(item.task, device)[1], timed(item.bound, device)[1]) for _ in range(repeat)]
    return min(task for task, _ in pairs), min(bound for _, bound in pairs)


if __name__ == "__main__":
    main()
