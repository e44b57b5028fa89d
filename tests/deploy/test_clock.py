"""The clock."""

from __future__ import annotations

import time

import pytest
import torch

from chita.deploy.timing import timed


@pytest.mark.usefixtures("fake_clock")
def test_it_gives_the_result_and_its_seconds() -> None:
    def work() -> str:
        time.sleep(0.05)
        return "done"

    result, seconds = timed(work, torch.device("cpu"))
    assert result == "done"
    assert seconds == pytest.approx(0.05, abs=2e-5)
