"""A clock for the tests of timing: what they find does not depend on the machine."""

from __future__ import annotations

import time

import pytest

from chita.deploy import timing


class FakeClock:
    """Time passes while a test sleeps, and by ten microseconds whenever the clock is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.sleep(1e-5)
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of chita.deploy and time.sleep, without waiting."""
    found = FakeClock()
    monkeypatch.setattr(timing, "perf_counter", found)
    monkeypatch.setattr(time, "sleep", found.sleep)
    return found
