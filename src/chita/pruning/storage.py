"""Where the A of a run is stored: check the request, and plan within the memory budget."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

import torch

from chita.errors import ChitaError
from chita.methods import Method
from chita.model.weights import Weights
from chita.pruning.auto.search import Forms
from chita.pruning.config import PruneConfig
from chita.pruning.supports import Supports
from chita.solver.algorithm import Layout
from chita.solver.blocks.independent import batch_bytes
from chita.solver.coordinate_descent import BLOCK
from chita.solver.division import Division
from chita.solver.matrix.held import hold
from chita.solver.matrix.memory import ENTRY, format_bytes, free_bytes, resident_bytes
from chita.solver.matrix.plan import BATCHES, Planner, Work
from chita.solver.matrix.shared import SharedTarget
from chita.solver.matrix.target import Store
from chita.solver.ranks import Ranks
from chita.solver.solve import ALGORITHMS

logger = logging.getLogger(__name__)


def check_memory(
    method: Method, layout: Layout, n: int, device: torch.device, budget: int | None = None
) -> None:
    """Raise a ChitaError if A and what the method needs beside it do not fit.

    Args:
        method: whose `memory` says what it needs.
        layout: the layers, and the blocks they are cut into.
        n: the rows of A.
        device: where A lives.
        budget: the bytes that the process may take in all; None for what is free.
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
    """Block sizes to propose, the largest first: 1, 2 or 5 times a power of ten."""
    sizes = [digit * 10**power for power in range(2, 9) for digit in (1, 2, 5)]
    return [size for size in reversed(sizes) if size < largest]


FILLED = 0.6  # of what is free goes to A at most, where nobody gave a budget
SOLVES = 8  # a stage that chooses by held-out samples tries about so many


def choose_store(
    config: PruneConfig,
    supports: Supports,
    division: Division,
    forms: Forms,
    weights: Weights,
    n: int,
) -> Store:
    """Choose where the A of each stage is stored: shared by ranks, or within the memory budget.

    Args:
        config: the configuration of the run.
        supports: the supports that the run may have.
        division: of rows and columns among the ranks.
        forms: the forms of the problem that a stage may try.
        weights: the prunable weights.
        n: the rows of A.

    Raises:
        ChitaError: There is too little memory, or the method cannot read the requested storage.
    """
    method, device = config.resolve_method(), weights.device
    layout, ranks = division.layout, division.ranks
    if config.guarded and ranks.size == 1:
        config = replace(config, memory=fitting_memory(config, weights.size, n, device))
    check_store(config, method, layout, n=n, device=device, ranks=ranks)
    if ranks.size > 1:
        return partial(SharedTarget, ranks=ranks, bounds=division.bounds, counts=division.rows(n))
    # The search for a floor may end anywhere above the dense network.
    lowest = 0.0 if config.floor is not None else min(config.plan())
    kept = supports.kept(config.sparsity), supports.kept(lowest)
    return pick_store(config, method, layout, forms=forms, n=n, kept=kept, device=device)


def check_store(
    config: PruneConfig,
    method: Method,
    layout: Layout,
    *,
    n: int,
    device: torch.device,
    ranks: Ranks,
) -> None:
    """Raise a ChitaError for what can be told before the work starts: too little memory for a
    method that needs all of A in memory, or a storage that it cannot read.

    Args:
        config: what was asked for.
        method: that will use A.
        layout: of the columns of this rank.
        n: the rows of A.
        device: where A is computed.
        ranks: those who share it.
    """
    streams = method.streams and ranks.size == 1
    if config.storage != "float32" and not streams:
        who = f"method {method.name!r}" if ranks.size == 1 else f"a run on {ranks.size} ranks"
        raise ChitaError(f"storage must be 'float32' for {who}, got {config.storage!r}")
    if config.budget is None or not streams:
        check_memory(method, layout, n, device, config.budget)


def fitting_memory(config: PruneConfig, p: int, n: int, device: torch.device) -> int | str | None:
    """The budget asked for; if there is none, and A would not fit into what is free, most of that.

    Args:
        config: what was asked for.
        p: the weights.
        n: the rows of A.
        device: where A is computed.
    """
    if config.memory is not None:
        return config.memory
    free = free_bytes(device)
    if free is None or n * p * ENTRY <= FILLED * free:
        return None
    logger.info("A does not fit into memory: a budget of %s", format_bytes(int(FILLED * free)))
    return resident_bytes(device) + int(FILLED * free)


def pick_store(
    config: PruneConfig,
    method: Method,
    layout: Layout,
    *,
    forms: Forms,
    n: int,
    kept: tuple[int, int],
    device: torch.device,
) -> Store:
    """Where one rank alone stores the A of each stage.

    Args:
        config: what was asked for.
        method: that will use A.
        layout: of the columns.
        forms: of the problem that a stage may try.
        n: the rows of A.
        kept: k of the stages, the least and the most.
        device: where A is computed.
    """
    dtype = None if config.storage == "float32" else getattr(torch, config.storage)
    if config.budget is None or not method.streams:
        return partial(hold, dtype)
    work = plan_work(method, layout, forms, n=n, kept=kept, device=device)
    if config.held_out_for is not None:
        work = replace(work, solves=SOLVES * work.solves)
    if config.drops_dead and work.batch is not None:
        work = replace(work, solves=work.solves + 1)  # the pass that finds dead columns
    return Planner(config.budget, work, dtype)


def plan_work(
    method: Method,
    layout: Layout,
    forms: Forms,
    *,
    n: int,
    kept: tuple[int, int],
    device: torch.device,
) -> Work:
    """What one solve does with A at most, in any of its forms."""
    passes = 1 + max(sweeps for _, sweeps in forms.blocks)  # over blocks apart, and then talking
    layouts = [replace(layout, block_size=size) for size in {size for size, _ in forms.blocks}]
    cuts = [each.blocks for each in layouts if each.blocks is not None]
    largest = max((stop - start for blocks in cuts for start, stop in blocks), default=0)
    batch = max(largest, batch_bytes(device) // (n * ENTRY)) if cuts else None
    if len(cuts) == len(layouts):
        return Work(kept=max(kept), batch=batch, solves=passes)
    work = _whole_work(method, sum(layout.layers), *kept)
    return replace(work, beside=work.beside + BATCHES * (batch or 0) * n * ENTRY, solves=passes)


def _whole_work(method: Method, p: int, fewest: int, most: int) -> Work:
    """What the stages need at most: the active set is largest where it just is one."""
    active = method.options.active
    copied = min(int(active * most), p - 1) if int(active * fewest) < p else 0
    if method.algorithm is not ALGORITHMS["cd"]:
        return Work(kept=most, active=copied)
    # Coordinate descent copies the support's columns too, and has the triangles of their blocks.
    return Work(kept=most, active=max(copied, most), beside=most * BLOCK * ENTRY)
