"""The clock: seconds that count what a GPU still has to do."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import torch

Result = TypeVar("Result")


def timed(work: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """What the work gives, and the seconds it takes."""
    _wait(device)
    began = perf_counter()
    result = work()
    _wait(device)
    return result, perf_counter() - began


def _wait(device: torch.device) -> None:
    """Until all that was asked of a GPU is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
