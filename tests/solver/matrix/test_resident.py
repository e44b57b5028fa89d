"""The memory of this process."""

from __future__ import annotations

import subprocess
import sys

import torch

from chita.solver.matrix.memory import peak_memory_bytes, resident_bytes

CPU = torch.device("cpu")


def test_peak_memory_is_in_bytes_and_stays() -> None:
    """But for the pages that the kernel has yet to count, since it does so by the batch."""
    held = torch.ones(200 << 20, dtype=torch.uint8)
    peak = peak_memory_bytes(CPU)
    assert held.nbytes < peak < 1 << 37
    size = held.nbytes
    del held
    assert peak_memory_bytes(CPU) > peak - 0.1 * size


def test_resident_memory_follows_what_is_held() -> None:
    before = resident_bytes(CPU)
    held = torch.ones(200 << 20, dtype=torch.uint8)
    with_it = resident_bytes(CPU)
    assert with_it > before + 0.9 * held.nbytes
    del held
    assert resident_bytes(CPU) < with_it - (150 << 20)


def test_what_the_parent_holds_does_not_count() -> None:
    ballast = torch.ones(1 << 30, dtype=torch.uint8)
    ask = (
        "import torch; from chita.solver.matrix.memory import peak_memory_bytes; "
        "print(peak_memory_bytes(torch.device('cpu')))"
    )
    child = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert 10 << 20 < int(child.stdout) < ballast.nbytes
