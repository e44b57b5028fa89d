"""Time of algorithm 6 with batched blocks, relative to a lower bound.

The bound is the time of the batched Gram products of all blocks: A_S A_S^T for every block, or
A_S^T A_S where fewer weights are kept than there are samples, with S the support of the largest
magnitudes. It is measured in the same run, so that the ratio is comparable between machines. The
solver that processes one block after the other is measured on a few blocks in the middle, and its
time is extrapolated to all blocks.

A and the weights are random. The weights have a different scale in each layer; if p is that of
ResNet50, they are those of its initialisation, so that the shares of kept weights differ between
the blocks as they do in ResNet50.

    python benchmarks/blocks.py [--device cuda] [--p 25502912] [--n 500] [--block-size 10000]
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable

import torch
from torch import Tensor

from chita.deploy.timing import timed
from chita.methods.chita import CHITA_BSO
from chita.model.weights import Weights
from chita.solver.algorithm import Algorithm, Layout, SupportThenUpdate
from chita.solver.iht_active_set import refine_by_backsolve
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.problem import Problem
from chita.solver.solve import iht_support, solve_problem
from chita.zoo import NETWORKS

LAMBDA = 1e-3
BATCH = 16  # m; the first-order term is scaled by 1 / m
SPARSITY = 0.9
ENTRY = 0.01  # the standard deviation of the entries of A
PIECE = 2**16  # the number of columns of A drawn at a time
ALONE = 20  # the number of blocks solved one after the other

Task = Callable[[], object]


def main() -> None:
    """Run the benchmark and print the times."""
    parser = ArgumentParser(description="Time of algorithm 6 relative to its Gram products.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--p", type=int, default=400_000, help="number of weights")
    parser.add_argument("--n", type=int, default=500, help="number of rows of A")
    parser.add_argument("--block-size", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3, help="number of runs; the fastest counts")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    w0, layers = trained_weights(arguments.p, device)
    layout = Layout(layers, arguments.block_size)
    A = random_columns(arguments.p, arguments.n, device)
    problem = Problem.build(HeldMatrix(A), w0, lam=LAMBDA, alpha=1 / BATCH)
    print(f"p = {arguments.p:,}, n = {arguments.n}, {len(layout.blocks or ())} blocks on {device}")
    held = peak_bytes(device)
    whole, bound = [], []
    for _ in range(arguments.repeat):
        whole.append(timed(lambda: solve(problem, layout), device)[1])
        peak = peak_bytes(device)
        bound.append(timed(lambda: gram_products(problem, layout), device)[1])
    print(f"solve in batches  {min(whole):8.3f} s   (first {whole[0]:.3f} s)")
    print(f"Gram products     {min(bound):8.3f} s   ratio {min(whole) / min(bound):.2f}")
    print(f"one by one        {one_by_one(problem, layout, device):8.3f} s   (in proportion)")
    if device.type == "cuda":
        print(f"memory beside A   {(peak - held) / 1e9:8.2f} GB, A {held / 1e9:.2f} GB")


@torch.no_grad()
def solve(problem: Problem, layout: Layout, algorithm: Algorithm = CHITA_BSO.algorithm) -> None:
    """Solve by CHITA-BSO at the benchmark's sparsity."""
    k = int((1 - SPARSITY) * problem.matrix.p)
    solve_problem(problem, k, algorithm, options=CHITA_BSO.options, layout=layout)


def one_by_one(problem: Problem, layout: Layout, device: torch.device) -> float:
    """Return the seconds of all blocks, extrapolated from a few in the middle."""
    blocks = layout.blocks or []
    middle = blocks[len(blocks) // 2 :][:ALONE]
    start, stop = middle[0][0], middle[-1][1]
    matrix, w0 = HeldMatrix(problem.matrix.read(start, stop)), problem.w0[start:stop]
    part = Problem(matrix, w0, problem.mu, problem.offset)
    sizes = Layout(tuple(last - first for first, last in middle), layout.block_size)
    each = SupportThenUpdate(iht_support, refine_by_backsolve)
    return timed(lambda: solve(part, sizes, each), device)[1] * len(blocks) / len(middle)


@torch.no_grad()
def gram_products(problem: Problem, layout: Layout) -> None:
    """Compute the Gram product of each block on the support of P_k(w0), in batches."""
    k = int((1 - SPARSITY) * problem.matrix.p)
    blocks, support = layout.blocks or [], problem.start(k).support
    ends = torch.tensor([stop for _, stop in blocks], device=support.device)
    counts = torch.diff(torch.searchsorted(support, ends), prepend=ends.new_zeros(1))
    n, stored = problem.matrix.n, problem.matrix.whole()
    largest_first = counts.sort(descending=True).values.tolist()
    while largest_first and largest_first[0]:
        width = largest_first[0]
        alike = [count for count in largest_first if 1.1 * count >= width]
        largest_first = largest_first[len(alike) :]
        at_once = max(1, min(len(alike), len(stored) // 32 // width))
        # The time does not depend on the values: use the columns of the first blocks.
        columns = stored[: at_once * width].view(at_once, width, n)
        for _ in range(0, len(alike), at_once):
            _ = columns.mT @ columns if width > n else columns @ columns.mT


def trained_weights(p: int, device: torch.device) -> tuple[Tensor, tuple[int, ...]]:
    """Return weights, (p,), and the sizes of their layers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weights = Weights(NETWORKS["resnet50"].build())
        sizes = weights.sizes
        if p == sum(sizes):
            return weights.vector().to(device), sizes
        sizes = (p // 20, p // 10, p // 5, p - p // 20 - p // 10 - p // 5)
        scales = (0.1, 0.06, 0.04, 0.03)
        parts = [scale * torch.randn(size) for size, scale in zip(sizes, scales, strict=True)]
        return torch.cat(parts).to(device), sizes


def random_columns(p: int, n: int, device: torch.device) -> Tensor:
    """Return a random A as (p, n), drawn on the device."""
    generator = torch.Generator(device).manual_seed(0)
    columns = torch.empty(p, n, device=device)
    for piece in torch.split(columns, PIECE):
        piece.normal_(0, ENTRY, generator=generator)
    return columns


def peak_bytes(device: torch.device) -> int:
    """Return the peak GPU memory since the last call, in bytes; 0 on other devices."""
    if device.type != "cuda":
        return 0
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return peak


if __name__ == "__main__":
    main()
