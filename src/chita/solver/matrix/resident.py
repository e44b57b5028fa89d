"""The memory that this process has, and the most it ever had."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import torch


def resident_bytes(device: torch.device) -> int:
    """What the process has of a GPU's memory, or of the main memory.

    The most it ever had, where the system does not tell what it has now.
    """
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    table = Path("/proc/self/statm")
    if not table.exists():
        return peak_memory_bytes(device)
    return int(table.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory held so far: by the GPU's allocator, or else by the process.

    0 where the system does not tell, as on Windows.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    told = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(), re.M) if status.exists() else None
    if told:  # Linux's getrusage counts what the parent held when it made this process
        return int(told[1]) * 1024
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts in KiB but for macOS
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
