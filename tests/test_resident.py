"""The memory of this process."""

from __future__ import annotations

import torch

from chita.resident import peak_memory_bytes, resident_bytes

CPU = torch.device("cpu")


def test_peak_memory_is_in_bytes_and_never_falls() -> None:
    held = torch.ones(200 << 20, dtype=torch.uint8)
    peak = peak_memory_bytes(CPU)
    assert held.nbytes < peak < 1 << 37
    del held
    assert peak_memory_bytes(CPU) >= peak


def test_resident_memory_follows_what_is_held() -> None:
    before = resident_bytes(CPU)
    held = torch.ones(200 << 20, dtype=torch.uint8)
    with_it = resident_bytes(CPU)
    assert with_it > before + 0.9 * held.nbytes
    del held
    assert resident_bytes(CPU) < with_it - (150 << 20)
