"""Freed memory is reused inside the context, and returned to the system outside."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import pytest
import torch

from chita.model.freed_memory import MAPPED, freed_memory_reused

BLOCKS, PAGE = 16, 4096  # blocks of half the size that is mapped: four times the trim threshold


def faults(rounds: int = 4) -> int:
    """Allocate, touch and free some blocks, and return the page faults of all rounds but one."""
    size = MAPPED // 2
    began = 0
    for number in range(rounds + 1):
        if number == 1:
            began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [torch.ones(size, dtype=torch.uint8) for _ in range(BLOCKS)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_memory_is_reused_inside_and_returned_outside() -> None:
    pages = 4 * BLOCKS * MAPPED // 2 // PAGE
    with freed_memory_reused():
        inside = faults()
    outside = faults()
    with freed_memory_reused(wanted=False):
        unwanted = faults()
    assert inside < 0.1 * pages
    assert min(outside, unwanted) > 0.5 * pages


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_memory_is_returned_at_the_end() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    before = resident()
    with freed_memory_reused():
        faults(1)
        assert resident() > before + BLOCKS * MAPPED // 4
    assert resident() < before + BLOCKS * MAPPED // 8
