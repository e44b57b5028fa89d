"""Where the A of a run is to be stored: what was asked for, checked, and made a plan of."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from chita.config import PruneConfig
from chita.errors import ChitaError
from chita.l0.algorithm import Layout
from chita.l0.blocks import batch_bytes
from chita.l0.coordinate import BLOCK
from chita.l0.solve import ALGORITHMS
from chita.memory import check_memory, free_bytes
from chita.methods import Method
from chita.ranks import Ranks
from chita.resident import resident_bytes
from chita.sizes import ENTRY, format_bytes
from chita.storage.plan import Planner, Work, hold
from chita.storage.target import Store

logger = logging.getLogger(__name__)

FILLED = 0.6  # of what is free goes to A at most, where nobody gave a budget
SOLVES = 8  # a stage with ridge="auto" tries about so many


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
    n: int,
    kept: Sequence[int],
    device: torch.device,
) -> Store:
    """Where one rank alone stores the A of each stage.

    Args:
        config: what was asked for.
        method: that will use A.
        layout: of the columns.
        n: the rows of A.
        kept: k of each stage.
        device: where A is computed.
    """
    dtype = None if config.storage == "float32" else getattr(torch, config.storage)
    if config.budget is None or not method.streams:
        return partial(hold, dtype)
    if layout.blocks is None:
        work = _whole_work(method, sum(layout.layers), kept)
    else:
        work = _block_work(layout.blocks, n, max(kept), device)
    passes = 1 + config.block_sweeps  # over blocks apart, and then talking
    solves = passes * (SOLVES if config.ridge == "auto" else 1)
    return Planner(config.budget, replace(work, solves=solves), dtype)


def _whole_work(method: Method, p: int, kept: Sequence[int]) -> Work:
    """What the stages need at most: the active set is largest where it just is one."""
    active = [int(method.options.active * k) for k in kept]
    copied = max((size for size in active if size < p), default=0)
    if method.algorithm is not ALGORITHMS["cd"]:
        return Work(kept=max(kept), active=copied)
    # Coordinate descent copies the support's columns too, and has the triangles of their blocks.
    return Work(kept=max(kept), active=max(copied, *kept), beside=max(kept) * BLOCK * ENTRY)


def _block_work(blocks: Sequence[tuple[int, int]], n: int, k: int, device: torch.device) -> Work:
    largest = max(stop - start for start, stop in blocks)
    return Work(kept=k, batch=max(largest, batch_bytes(device) // (n * ENTRY)))
