"""Where A is stored: check the options, and plan within the memory budget."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from chita.errors import ChitaError
from chita.methods import Method
from chita.model.weights import Weights
from chita.pruning.auto.candidates import CandidateSpace
from chita.pruning.config import PruneConfig
from chita.pruning.stage_policy import StagePolicy
from chita.pruning.stage_problem import Formulation
from chita.pruning.supports import Supports
from chita.solver.algorithm import Layout
from chita.solver.blocks.independent import batch_bytes
from chita.solver.coordinate_descent import BLOCK
from chita.solver.division import Division
from chita.solver.matrix.half_precision import HalfTarget
from chita.solver.matrix.in_memory import HeldTarget, Store
from chita.solver.matrix.memory import ENTRY, format_bytes, free_bytes, resident_bytes
from chita.solver.matrix.plan import BATCHES, Planner, Work
from chita.solver.matrix.shared import SharedTarget
from chita.solver.ranks import Ranks
from chita.solver.solve import ALGORITHMS

logger = logging.getLogger(__name__)

FILLED = 0.6  # the largest fraction of the free memory for A, without a given budget
SOLVES = 8  # the approximate number of solves of a stage that chooses by held-out samples


def check_memory(
    method: Method, layout: Layout, n: int, device: torch.device, budget: int | None = None
) -> None:
    """Raise a ChitaError if A and the other memory of a method do not fit.

    Args:
        method: the method, whose `memory` returns the bytes it needs besides A.
        layout: the layers, and the blocks into which they are cut.
        n: the rows of A.
        device: the device of A.
        budget: the bytes that the process may use in total; None for the free memory.
    """
    free = free_bytes(device) if budget is None else max(0, budget - resident_bytes(device))
    matrix = n * sum(layout.layers) * ENTRY if method.curvature.uses_gradients else 0

    def needed(block_size: int | None) -> int:
        return matrix + method.memory(Layout(layout.layers, block_size), n)

    if free is None or needed(layout.block_size) <= free:
        return
    largest = min(layout.block_size or sum(layout.layers), max(layout.layers))
    sizes = [size for size in _round_sizes(largest) if needed(size) <= free]
    advice = f"try --block-size {sizes[0]}" if sizes else "try fewer samples, or another method"
    left = f"{format_bytes(free)} are free"
    if budget is not None:
        left = f"memory={format_bytes(budget)} leaves {format_bytes(free)}"
    raise ChitaError(
        f"{method.name} with block {largest if layout.block_size else sum(layout.layers)} needs "
        f"{format_bytes(needed(layout.block_size))}, {left}; {advice}"
    )


def _round_sizes(largest: int) -> list[int]:
    """Return block sizes to propose, the largest first: 1, 2 or 5 times a power of ten."""
    sizes = [digit * 10**power for power in range(2, 9) for digit in (1, 2, 5)]
    return [size for size in reversed(sizes) if size < largest]


def choose_store(
    policy: StagePolicy,
    supports: Supports,
    division: Division,
    space: CandidateSpace,
    weights: Weights,
    n: int,
) -> Store:
    """Choose where the A of each stage is stored: shared by ranks, or within the memory budget.

    Args:
        policy: the stage policy of the run, with its configuration.
        supports: the supports that the run may have.
        division: the rows and columns of each rank.
        space: the candidates that a stage may try.
        weights: the prunable weights.
        n: the rows of A.

    Raises:
        ChitaError: there is too little memory, or the method cannot read the requested storage.
    """
    config, device = policy.config, weights.device
    method, layout, ranks = config.resolve_method(), division.layout, division.ranks
    if policy.adapts_memory and ranks.size == 1:
        config = replace(config, memory=fitting_memory(config, weights.size, n, device))
    check_store(config, method, layout, n=n, device=device, ranks=ranks)
    if ranks.size > 1:
        return partial(SharedTarget, ranks=ranks, bounds=division.bounds, counts=division.rows(n))
    # The search for a floor may end anywhere above the dense network.
    lowest = 0.0 if config.floor is not None else min(config.plan())
    kept = supports.kept(config.sparsity), supports.kept(lowest)
    return pick_store(
        config,
        method,
        layout,
        formulations=[candidate.apply(policy.formulation) for candidate in space.all()],
        solves=1 if policy.held_out_for is None else SOLVES,
        n=n,
        kept=kept,
        device=device,
    )


def check_store(
    config: PruneConfig,
    method: Method,
    layout: Layout,
    *,
    n: int,
    device: torch.device,
    ranks: Ranks,
) -> None:
    """Raise a ChitaError if a method cannot read the storage, or needs too much memory for A.

    Args:
        config: the options of the run.
        method: the method that uses A.
        layout: the layout of the columns of this rank.
        n: the rows of A.
        device: the device on which A is computed.
        ranks: the ranks that share A.
    """
    streams = method.streams and ranks.size == 1
    if config.storage != "float32" and not streams:
        who = f"method {method.name!r}" if ranks.size == 1 else f"a run on {ranks.size} ranks"
        raise ChitaError(f"storage must be 'float32' for {who}, got {config.storage!r}")
    if config.memory_bytes is None or not streams:
        check_memory(method, layout, n, device, config.memory_bytes)


def fitting_memory(config: PruneConfig, p: int, n: int, device: torch.device) -> int | str | None:
    """Return the given budget; without one, most of the free memory if A does not fit into it.

    Args:
        config: the options of the run.
        p: the prunable weights.
        n: the rows of A.
        device: the device on which A is computed.
    """
    if config.memory is not None:
        return config.memory
    free = free_bytes(device)
    if free is None or n * p * ENTRY <= FILLED * free:
        return None
    logger.info(
        "A does not fit into memory: using a budget of %s", format_bytes(int(FILLED * free))
    )
    return resident_bytes(device) + int(FILLED * free)


def pick_store(
    config: PruneConfig,
    method: Method,
    layout: Layout,
    *,
    formulations: Sequence[Formulation],
    solves: int,
    n: int,
    kept: tuple[int, int],
    device: torch.device,
) -> Store:
    """Return where a single rank stores the A of each stage.

    Args:
        config: the options of the run.
        method: the method that uses A.
        layout: the layout of the columns.
        formulations: the formulations of the problem that a stage may try.
        solves: the approximate number of solves of a stage.
        n: the rows of A.
        kept: the least and the largest k of the stages.
        device: the device on which A is computed.
    """
    dtype = None if config.storage == "float32" else getattr(torch, config.storage)
    if config.memory_bytes is None or not method.streams:
        return HeldTarget if dtype is None else partial(HalfTarget, dtype=dtype)
    work = plan_work(method, layout, formulations, n=n, kept=kept, device=device)
    work = replace(work, solves=solves * work.solves)
    if config.drops_dead and work.batch is not None:
        work = replace(work, solves=work.solves + 1)  # the pass that finds dead columns
    return Planner(config.memory_bytes, work, dtype)


def plan_work(
    method: Method,
    layout: Layout,
    formulations: Sequence[Formulation],
    *,
    n: int,
    kept: tuple[int, int],
    device: torch.device,
) -> Work:
    """Return the largest work of one solve on A, over all formulations."""
    # Independent blocks take one pass over A, and each sweep over coupled blocks another.
    passes = 1 + max(formulation.options.block_sweeps for formulation in formulations)
    sizes = {formulation.block_size for formulation in formulations}
    layouts = [replace(layout, block_size=size) for size in sizes]
    cuts = [each.blocks for each in layouts if each.blocks is not None]
    largest = max((stop - start for blocks in cuts for start, stop in blocks), default=0)
    batch = max(largest, batch_bytes(device) // (n * ENTRY)) if cuts else None
    if len(cuts) == len(layouts):
        return Work(kept=max(kept), batch=batch, solves=passes)
    work = _whole_work(method, sum(layout.layers), *kept)
    return replace(work, beside=work.beside + BATCHES * (batch or 0) * n * ENTRY, solves=passes)


def _whole_work(method: Method, p: int, fewest: int, most: int) -> Work:
    """Return the largest work of a stage without blocks.

    The active set is largest at the largest k for which it does not contain all weights.
    """
    active = method.options.active
    copied = min(int(active * most), p - 1) if int(active * fewest) < p else 0
    if method.algorithm is not ALGORITHMS["cd"]:
        return Work(kept=most, active=copied)
    # Coordinate descent also copies the columns of the support, and stores their blocks' triangles.
    return Work(kept=most, active=max(copied, most), beside=most * BLOCK * ENTRY)
