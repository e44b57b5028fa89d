"""A clock that training steps advance, so that budgets in seconds do not depend on the machine."""

from __future__ import annotations

import time

import pytest

from chita.pruning.recovery.updates import RelativeAdam


class StepClock:
    """Time in which a training step of recovery takes a fixed time, and nothing else takes any.

    Args:
        patch: replaces `time.perf_counter` and counts the steps until the test ends.
        step: the seconds of a training step.
    """

    def __init__(self, patch: pytest.MonkeyPatch, step: float) -> None:
        self.now = 0.0
        update = RelativeAdam.apply

        def timed_update(updates: RelativeAdam) -> None:
            update(updates)
            self.now += step

        patch.setattr(RelativeAdam, "apply", timed_update)
        patch.setattr(time, "perf_counter", lambda: self.now)
