"""What is said about too little memory."""

from __future__ import annotations

import pytest
import torch

from chita.solver.matrix import memory
from chita.solver.matrix.memory import describe_shortage
from tests.support.messages import says


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: tried to allocate 4194304000 "
                      "bytes. Error code 12"), "4.19 GB"),
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"),
         "2.15 GB"),
        (MemoryError("Unable to allocate 37.3 GiB for an array with shape (5,)"),
         "40.1 GB"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("free", [None, 10**9, 10**12])
def test_the_size_is_named(
    error: Exception, size: str, free: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    line = describe_shortage(error) or ""
    assert says(line, "memory", size)
    assert says(line, "1 GB") == (free == 10**9)  # more is free than needed: a limit applies


def test_other_errors_are_not_about_memory() -> None:
    assert describe_shortage(RuntimeError("a fault")) is None
    assert describe_shortage(KeyError("memory")) is None
    assert says(describe_shortage(MemoryError()) or "", "memory")
