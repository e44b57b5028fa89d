"""Memory: parse and format numbers of bytes, and measure the memory of this process."""

from __future__ import annotations

import math
import os
import re
import sys
from numbers import Integral
from pathlib import Path
from typing import Any

import torch

from chita.errors import ChitaError

ENTRY = 4  # bytes of a float32, the type of A unless the model is in float64
FACTOR_ENTRY = 8  # bytes of a float64, the type in which systems are factorised

UNITS = {
    "": 1,
    **{name: 1000**power for power, name in enumerate(("B", "KB", "MB", "GB", "TB"))},
    **{name: 1000**power for power, name in enumerate("KMGT", start=1)},
    **{name: 1024**power for power, name in enumerate(("B", "KIB", "MIB", "GIB", "TIB"))},
}


def parse_bytes(name: str, given: Any) -> int:
    """Return the number of bytes that `given` stands for: "8GB", "1.5 GiB", or an integer.

    Args:
        name: the name of the argument, for the error message.
        given: the value of the argument.
    """
    if isinstance(given, Integral) and not isinstance(given, bool) and int(given) > 0:
        return int(given)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", str(given).strip().upper())
    if isinstance(given, str) and match and match[2] in UNITS:
        size = float(match[1]) * UNITS[match[2]]
        if 0 < size < math.inf:
            return int(size)
    raise ChitaError(f"{name} must be a size such as '8GB', '1.5GiB' or 2000000000, got {given!r}")


def format_bytes(count: float) -> str:
    """Format bytes with three digits, in the largest unit that gives a number of at least 1."""
    for unit in ("TB", "GB", "MB", "KB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.3g} {unit}"
    return f"{count:.0f} B"


_TRIED = re.compile(r"(?:tried|unable) to allocate ([\d.]+) *([KMGT]i?B|bytes)", re.I)
_NO_MEMORY = "can't allocate memory"  # a part of the message of torch's RuntimeError


def describe_shortage(error: BaseException) -> str | None:
    """Return in one line how much memory was needed; None if the error has another cause.

    Args:
        error: MemoryError of Python or numpy, or an error of torch's allocators.
    """
    text = str(error)
    on_gpu = isinstance(error, torch.cuda.OutOfMemoryError)
    if not (on_gpu or isinstance(error, MemoryError) or _NO_MEMORY in text):
        return None
    found = _TRIED.search(text)
    if found is None:
        return "there is not enough memory"
    unit = "B" if found[2] == "bytes" else found[2].upper()
    needed = float(found[1]) * UNITS[unit]
    free = free_bytes(torch.device("cuda" if on_gpu else "cpu"))
    why = "more than the limits of this process allow"
    if free is not None and free < needed:
        why = f"and {format_bytes(free)} are free"
    return f"there is not enough memory: a tensor needs {format_bytes(needed)}, {why}"


def free_bytes(device: torch.device) -> int | None:
    """Return the free bytes on a GPU or in main memory; None if the system does not report it."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    table = Path("/proc/meminfo")  # counts the page cache as available
    if table.exists():
        rows = dict(line.split(":", 1) for line in table.read_text().splitlines())
        return int(rows["MemAvailable"].split()[0]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def resident_bytes(device: torch.device) -> int:
    """Return the bytes of GPU or main memory that the process uses.

    On systems that do not report this, return the peak so far.
    """
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    table = Path("/proc/self/statm")
    if not table.exists():
        return peak_memory_bytes(device)
    return int(table.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes, of the GPU's allocator or else of the process.

    Return 0 on systems that do not report it, such as Windows.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    peak = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(), re.M) if status.exists() else None
    if peak:  # getrusage on Linux includes the memory of the parent when it made this process
        return int(peak[1]) * 1024
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts in KiB, on macOS in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
