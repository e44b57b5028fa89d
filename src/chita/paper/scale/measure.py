"""Measure a case: seconds and peak memory of the gradients and of a solve, with lower bounds.

On a CPU every rank of every case runs in a new process, so that the peak memory includes only this
case. Memory held before the measurement is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from chita.deploy.timing import timed
from chita.errors import ChitaError
from chita.methods.chita import CHITA_BSO
from chita.paper.scale.case import Case, make
from chita.solver.algorithm import Layout
from chita.solver.backsolve import gram_dtype
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.matrix.memory import format_bytes, free_bytes, peak_memory_bytes, resident_bytes
from chita.solver.problem import Problem
from chita.solver.ranks import ALONE, Ranks, joined_ranks
from chita.solver.solve import Solution, solve_problem

LAMBDA = 1e-3  # times the largest squared length of a row of A
RUNS = 3  # take the best of this many runs; the first one warms up
LONG = 20.0  # stop repeating after this many seconds in total

Result = TypeVar("Result")


def measure(case: Case, device: torch.device) -> dict[str, Any]:
    """Return the figures of a case: seconds of the slowest rank, memory of the largest one.

    Raises:
        ChitaError: there is not enough memory.
    """
    free = free_bytes(device)
    if free is not None and case.needed_bytes > free:
        raise ChitaError(
            f"needs {format_bytes(case.needed_bytes)} of memory, but {format_bytes(free)} are free"
        )
    if device.type == "cuda":
        return measure_rank(case, ALONE, device)
    # Ranks share the cores; with one thread each their times are comparable.
    threads = 1 if case.axis == "ranks" else torch.get_num_threads()
    with (
        TemporaryDirectory() as folder,
        ProcessPoolExecutor(case.ranks, mp_context=get_context("spawn")) as pool,
    ):
        arguments = (case, threads, folder)
        futures = [pool.submit(_in_own_process, rank, *arguments) for rank in range(case.ranks)]
        try:
            figures, *_ = [future.result() for future in futures]
        except BrokenProcessPool as error:
            raise ChitaError("its process was killed, probably because memory ran out") from error
    return figures


def _in_own_process(rank: int, case: Case, threads: int, folder: str) -> dict[str, Any]:
    torch.set_num_threads(threads)
    if case.ranks > 1:
        meeting = f"file://{folder}/rendezvous"
        dist.init_process_group("gloo", meeting, rank=rank, world_size=case.ranks)
    with joined_ranks() as ranks:
        figures = measure_rank(case, ranks, torch.device("cpu"))
    if case.ranks > 1:
        dist.destroy_process_group()
    return figures


@torch.no_grad()
def measure_rank(case: Case, ranks: Ranks, device: torch.device) -> dict[str, Any]:
    """Return the figures of a case; they are the same on all ranks."""
    made = make(case, ranks, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = resident_bytes(device)
    gradients = None
    if case.network is None:
        stored = made.stored()
    else:
        stored, gradients = best_time(made.stored, ranks, device)
    lam = LAMBDA * _largest_row(HeldMatrix(stored, ranks))

    def problem() -> Problem:  # new each time: a matrix caches its last Gram product
        return Problem.build(HeldMatrix(stored, ranks), made.w0, lam=lam, alpha=0.0)

    def solve(layout: Layout) -> Solution:
        algorithm, options = CHITA_BSO.algorithm, CHITA_BSO.options
        return solve_problem(problem(), case.k, algorithm, options=options, layout=layout)

    solution, seconds = best_time(lambda: solve(made.layout), ranks, device)
    blocks = None
    if case.block_size is not None:
        layout = replace(made.layout, block_size=case.block_size)
        blocks = best_time(lambda: solve(layout), ranks, device)[1]
    peak = torch.tensor(peak_memory_bytes(device) - before)
    return {
        "gradients": gradients,
        "solve": seconds,
        "blocks": blocks,
        **_bounds(problem, solution.support),
        "peak_bytes": int(ranks.max(peak)),
        "iterations": solution.iterations,
        "threads": torch.get_num_threads(),
    }


def _largest_row(matrix: GradientMatrix) -> float:
    """Return the largest squared length of a row.

    Random weights can have huge gradients. With a fixed lambda, their scale would determine the
    precision of the Gram product.
    """
    everything = torch.arange(matrix.p, device=matrix.device)
    return float(matrix.row_square_norms(everything).max())


def _bounds(problem: Callable[[], Problem], support: Tensor) -> dict[str, float]:
    """Time the steps that every solve needs: a pass over A, a Gram product, a factorisation."""
    matrix, ranks, device = problem().matrix, problem().ranks, problem().matrix.device
    r = torch.ones(matrix.n, dtype=matrix.dtype, device=device)
    dtype = gram_dtype(problem(), support)
    one_pass = best_time(lambda: matrix.adjoint(r), ranks, device)[1]
    gram, product = best_time(lambda: problem().matrix.gram(support, dtype), ranks, device)
    system = gram.double() + problem().mu * torch.eye(matrix.n, device=device)
    factorisation = best_time(lambda: torch.linalg.cholesky_ex(system), ranks, device)[1]
    return {"pass": one_pass, "gram": product, "factorisation": factorisation}


def best_time(
    work: Callable[[], Result], ranks: Ranks, device: torch.device
) -> tuple[Result, float]:
    """Return the result of the work and the least time over a few runs.

    The time of a run is that of the slowest rank.
    """
    results: list[Result] = []
    seconds: list[float] = []
    while len(seconds) < RUNS and sum(seconds) < LONG:
        results.clear()  # two results may not fit into memory
        result, taken = timed(work, device)
        results.append(result)
        del result
        seconds.append(float(ranks.max(torch.tensor(taken))))
    return results[0], min(seconds)
