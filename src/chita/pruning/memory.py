"""Memory that a method needs and the machine has not is an error before the work starts."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from chita.errors import ChitaError
from chita.methods.method import Method
from chita.solver.algorithm import Layout
from chita.solver.matrix.resident import resident_bytes
from chita.solver.matrix.sizes import ENTRY, format_bytes


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
    matrix = n * sum(layout.layers) * ENTRY if method.curvature == "fisher" else 0

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


def free_bytes(device: torch.device) -> int | None:
    """What is free on a GPU or in main memory; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + _cached_bytes(device)
    table = Path("/proc/meminfo")  # counts what the page cache would give back
    if table.exists():
        rows = dict(line.split(":", 1) for line in table.read_text().splitlines())
        return int(rows["MemAvailable"].split()[0]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _cached_bytes(device: torch.device) -> int:
    """What torch holds of the GPU's memory without using it."""
    return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _round_sizes(largest: int) -> list[int]:
    """Block sizes to propose, the largest first: 1, 2 or 5 times a power of ten."""
    sizes = [digit * 10**power for power in range(2, 9) for digit in (1, 2, 5)]
    return [size for size in reversed(sizes) if size < largest]
