"""The clock."""

from __future__ import annotations

import time

import torch

from chita.deploy.timing import timed


def test_it_gives_the_result_and_its_seconds() -> None:
    def work() -> str:
        time.sleep(0.05)
        return "done"

    result, seconds = timed(work, torch.device("cpu"))
    assert result == "done"
    assert 0.05 <= seconds < 5
