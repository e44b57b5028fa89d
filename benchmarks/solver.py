"""Time of the parts of the solver, relative to lower bounds.

Every part and its bound run in turn, and the fastest run of each counts, so that the ratios are
comparable between machines. A contains gradients of ResNet20 on random images, and the sparsity is
90 %. The last item is the whole solver on a random n x 200,000 array.

A pass over a matrix is one product of the matrix, stored by columns, with a vector.

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
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.backsolve import backsolve
from chita.solver.coordinate_descent import CoordinateDescent
from chita.solver.iht_active_set import step_rule
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Iterate, Problem
from chita.solver.solve import solve
from chita.solver.stepsize import Path as StepPath
from chita.zoo import NETWORKS

CHECKPOINT = Path(__file__).parents[1] / "../shared/checkpoints/resnet20_cifar10.safetensors"
LAMBDA = 1e-3
SPARSITY = 0.9
WIDTH = 200_000  # the number of columns of the array for the whole solver

Task = Callable[[], object]


@dataclass(frozen=True)
class Item:
    """A part of the solver, the work that bounds it, and the largest accepted ratio."""

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
    parser = ArgumentParser(description="Time of the parts of the solver relative to lower bounds.")
    parser.add_argument("--rows", type=int, default=1000, help="n, the number of rows of A")
    parser.add_argument("--repeat", type=int, default=5, help="number of runs; the fastest counts")
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
    """Yield the items; each matrix is freed before the next one is created."""
    problem = resnet20_problem(rows, device)
    yield from parts(problem, problem.start(int((1 - SPARSITY) * problem.matrix.p)))
    del problem
    yield whole(rows, device)


def resnet20_problem(rows: int, device: torch.device) -> Problem:
    """Return problem (main-problem) for ResNet20, trained if the checkpoint exists."""
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
    """Yield the backsolve, the CD sweep and the IHT iteration, starting from x = P_k(w0)."""
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
    """Return the same problem with a matrix that has no cached Gram product."""
    return replace(problem, matrix=HeldMatrix(problem.matrix.whole()))


def whole(rows: int, device: torch.device) -> Item:
    """Return the item that runs chita.solve with default options on an n x p array."""
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
    """Return the least seconds of the task and of its bound, which run in turn."""
    pairs = [(timed(item.task, device)[1], timed(item.bound, device)[1]) for _ in range(repeat)]
    return min(task for task, _ in pairs), min(bound for _, bound in pairs)


if __name__ == "__main__":
    main()
