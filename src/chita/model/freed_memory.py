"""Freed memory on a CPU: whether it stays with the process.

The C library of Linux returns freed memory to the system as soon as the top of the heap is free.
The activations of a training step are freed at its end, so the next step gets all of its memory
from the system again, page by page. This takes a fifth of the time of a step of ResNet20.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# Parameters of mallopt, from malloc.h, and their values. Blocks of at least MAPPED bytes, the most
# that glibc accepts, are mapped and returned one by one in any case. The heap is trimmed if MAPPED
# * 2 bytes at its top are free: glibc itself arrives at these two values while a process frees
# large blocks.
_TRIM_THRESHOLD, _MAP_THRESHOLD = -1, -3
MAPPED = 32 << 20
NEVER = (1 << 31) - 1
# The variables by which a user sets these parameters: a call of mallopt would override them.
SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@contextmanager
def freed_memory_reused(wanted: bool = True) -> Iterator[None]:
    """Keep the freed memory of the heap while the context is open, and return it at the end.

    It does nothing where the C library is not glibc, or where one of the environment variables
    SET_BY_USER is set. The setting applies to the whole process.

    Args:
        wanted: whether to do so; a run with a limit on its memory should not.
    """
    library = _glibc() if wanted and not any(map(os.environ.get, SET_BY_USER)) else None
    if library is None:
        yield
        return
    library.mallopt(_MAP_THRESHOLD, MAPPED)
    library.mallopt(_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        library.mallopt(_TRIM_THRESHOLD, 2 * MAPPED)
        library.malloc_trim(0)


@cache
def _glibc() -> Any:
    """Return the C library if it is glibc; None otherwise."""
    if platform.libc_ver()[0] != "glibc":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
