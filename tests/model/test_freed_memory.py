"""Freed memory is reused inside the context, and returned to the system outside.

Each test runs in a process of its own: what earlier tests left at the top of the heap decides
whether glibc can return memory at all.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc has these settings"
)

# Blocks of half the size that is mapped: in all, four times the threshold of a trim. They come from
# the C library itself: a tensor also allocates its header, and glibc keeps some freed headers for
# later, which can lie above the blocks and prevent a trim.
BLOCKS, PAGE = 16, 4096
SETUP = f"""
import ctypes, json, resource
from pathlib import Path
from chita.model.freed_memory import MAPPED, freed_memory_reused

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def faults(rounds):
    '''Allocate, touch and free the blocks; return the page faults of all rounds but one.'''
    for number in range(rounds + 1):
        if number == 1:
            began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [library.malloc(MAPPED // 2) for _ in range({BLOCKS})]
        for block in blocks:
            library.memset(block, 1, MAPPED // 2)
        for block in blocks:
            library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * {PAGE}

size = {BLOCKS} * MAPPED // 2
"""


def run(script: str, **variables: str) -> Any:
    """Run the script in a fresh process with more environment variables, and return what it prints
    as JSON."""
    command, environment = [sys.executable, "-c", SETUP + script], {**os.environ, **variables}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


def test_memory_is_reused_inside_and_returned_outside() -> None:
    found = run(
        """
with freed_memory_reused():
    inside = faults(4)
outside = faults(4)
with freed_memory_reused(wanted=False):
    unwanted = faults(4)
print(json.dumps([4 * size, inside, outside, unwanted]))
"""
    )
    touched, inside, outside, unwanted = found
    pages = touched // PAGE
    assert inside < 0.1 * pages
    assert min(outside, unwanted) > 0.5 * pages


def test_memory_is_returned_at_the_end() -> None:
    found = run(
        """
before = resident()
with freed_memory_reused():
    faults(1)
    kept = resident()
print(json.dumps([size, kept - before, resident() - before]))
"""
    )
    size, kept, left = found
    assert kept > size / 2
    assert left < size / 4


# With each of these values, glibc returns the blocks of `faults` to the system.
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_MMAP_THRESHOLD_", "33554432"),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072"),
    ],
)
def test_the_settings_of_the_user_are_kept(variable: str, value: str) -> None:
    touched, inside = run(
        """
with freed_memory_reused():
    inside = faults(4)
print(json.dumps([4 * size, inside]))
""",
        **{variable: value},
    )
    assert inside > 0.5 * touched // PAGE
