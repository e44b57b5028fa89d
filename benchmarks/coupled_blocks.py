"""Independent blocks (algorithm 6) compared with coupled blocks, on the A of a trained network.

All variants solve the same problem, and Q is the global objective. The script prints Q relative to
that of P_k(w0), and the time relative to independent blocks. It also solves the problem without
blocks, and with safe scaling: independent blocks whose products A_B d_B are scaled so that their
sum cannot overshoot when all b blocks move at once,

    Q(w + e) <= Q(w) + sum_B (A_B^T rho + mu d_B) . e_B + b/2 |A_B e_B|^2 + mu/2 |e_B|^2.

    python benchmarks/coupled_blocks.py --checkpoints FOLDER [--network resnet20] [--n 500]
        [--batch 1]
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from itertools import product
from pathlib import Path
from tempfile import gettempdir

import torch

from chita import data
from chita.deploy.timing import timed
from chita.model.accuracy import accuracy
from chita.paper.network_problem import trained_problem
from chita.paper.networks import find_subjects
from chita.pruning.config import kept_weights
from chita.solver.algorithm import Layout
from chita.solver.blocks.batched_algebra import times
from chita.solver.blocks.batched_problem import BatchedProblem
from chita.solver.blocks.independent import side_by_side
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.solve import ALGORITHMS, batched_bso, solve_problem

TESTED = 2000  # the number of test images
ITERATIONS = 5  # IHT iterations, as in CHITA-BSO


def main() -> None:
    """Run the benchmark and print the results."""
    parser = ArgumentParser(description="Independent blocks compared with coupled blocks.")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--network", default="resnet20")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--n", type=int, default=500, help="number of rows of A")
    parser.add_argument("--batch", type=int, default=1, help="m, the samples averaged into a row")
    parser.add_argument("--block-size", type=int, default=2000)
    parser.add_argument("--sparsity", type=float, default=0.9)
    given = parser.parse_args()
    device, out = torch.device(given.device), Path(gettempdir()) / "chita-coupled"
    out.mkdir(exist_ok=True)
    subject = find_subjects(given.checkpoints, device=device, out=out)[given.network]
    test = data.Batches(subject.splits.test, 250, limit=TESTED, device=device)
    trained = trained_problem(subject, 0, samples=given.n, batch=given.batch)
    stored = trained.gradients.matrix.whole()
    p = len(trained.w0)
    k, layout = kept_weights(p, given.sparsity), Layout(trained.weights.sizes, given.block_size)
    print(f"{given.network}, p = {p:,}, k = {k:,}, n = {given.n}, m = {given.batch}")

    for lam, alpha in product((1e-3, 1e-4), (1 / given.batch, 0.0)):
        problem = Problem.build(HeldMatrix(stored), trained.w0, lam=lam, alpha=alpha)
        start = problem.start(k).objective
        print(f"\nlambda = {lam:g}, alpha = {alpha:g}")
        unit = None
        for name, form in forms(problem, k, layout).items():
            x, seconds = timed(form, device)
            unit = unit or seconds
            with trained.weights.temporarily(x.w):
                right = accuracy(trained.model, test)
            figures = f"Q {x.objective / start:6.3f}   time {seconds / unit:5.2f}"
            print(f"{name:18} {figures}   accuracy {right:6.2f} %", flush=True)


def forms(problem: Problem, k: int, layout: Layout) -> dict[str, Callable[[], Iterate]]:
    """Return the variants to compare; the time of the first one is the unit."""

    @torch.no_grad()
    def bso(sweeps: int = 0, layout: Layout = layout) -> Iterate:
        options = Options(iterations=ITERATIONS, block_sweeps=sweeps)
        found = solve_problem(problem, k, ALGORITHMS["bso"], options=options, layout=layout)
        return problem.at(found.w, found.support)

    return {
        "apart": bso,
        "scaled": lambda: safe_scaling(problem, k, layout),
        "coupled, 1 sweep": lambda: bso(1),
        "coupled, 3 sweeps": lambda: bso(3),
        "no blocks": lambda: bso(layout=Layout(layout.layers)),
        "P_k(w0)": lambda: problem.start(k),
    }


@torch.no_grad()
def safe_scaling(problem: Problem, k: int, layout: Layout) -> Iterate:
    """Minimise the bound over each block on the support of P_k(w0), all blocks at once."""
    blocks = layout.blocks or []
    x, stretch = problem.start(k), len(blocks) ** 0.5
    w = x.w.clone()
    kept = torch.zeros_like(w, dtype=torch.bool).index_fill_(0, x.support, True)
    for batch in side_by_side(blocks, problem.matrix):
        columns = batch.stack_own(problem.matrix.read(batch.start, batch.stop))
        w0, now = batch.stack(problem.w0), batch.stack(x.w)
        own = times(now - w0, columns)
        part = BatchedProblem(
            columns * stretch,
            w0,
            kept=batch.stack(kept),
            mu=problem.mu,
            offset=x.rho / stretch - own * stretch,
        )
        solved = batched_bso(part, part.start(), Options(iterations=0), Trace(0))
        w[batch.start : batch.stop] = batch.unstack(solved.w)
    return problem.at(w, x.support)


if __name__ == "__main__":
    main()
