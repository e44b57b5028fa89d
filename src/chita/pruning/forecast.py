"""Forecast: what a run does now, and about how long the rest takes, for its bar and its log.

A run with recovery has a plan, whose times are measured by the range test and corrected in every
stage. A run without recovery extrapolates: from the first rows of A to all stages, and from the
finished stages to the remaining ones.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter

from chita.report.progress import RunBar, format_time

logger = logging.getLogger(__name__)

# Before the first solve, its time is assumed to be this multiple of that of its gradients.
SOLVE = 1.0
RECENT = 3  # finished stages whose time is extrapolated
LONG = 30.0  # seconds; a run that takes longer is described by a line
EVERY = 60.0  # seconds between two lines of the log about what a run does
# The first rows of A also take the preparations of the model and of torch. Their own time counts
# only if they are many, or if the user has waited for long.
FIRST_SHARE = 0.1  # of all rows
PATIENCE = 5.0  # seconds


class Forecast:
    """Shows the activities of a run and an estimate of its remaining time.

    Args:
        bar: the progress bar; by default none.
    """

    def __init__(self, bar: RunBar | None = None) -> None:
        self._bar = bar or RunBar()
        self._stage = self._activity = ""
        self._since = perf_counter()  # the beginning of the activity
        self._logged = self._since  # when the last line was logged
        self._first: tuple[int, float] | None = None  # the first rows of it, and when they ended
        self._stages: int | None = None  # that follow; None after the first
        # Of the training: its steps, those done, and the seconds of the run after it.
        self._steps, self._done, self._after = 0, 0, 0.0
        self._announced = False

    def begin_stage(self, number: int, stages: int, sparsity: float) -> None:
        """Show a stage, from 1."""
        self._stage = f"stage {number} of {stages}, {sparsity:.1%} sparse: "

    def begin(self, activity: str) -> None:
        """Show an activity."""
        self._since, self._first = perf_counter(), None
        self._activity = self._stage + activity
        self._bar.describe(self._activity)
        self._log()

    def _log(self) -> None:
        """Log the activity and the remaining time, about once in EVERY seconds."""
        now = perf_counter()
        if now - self._logged < EVERY:
            return
        self._logged, left = now, self._bar.left
        rest = "" if left is None else f", about {format_time(left)} left"
        logger.info("%s%s", self._activity, rest)

    def expect(self, seconds: float) -> None:
        """Set about how long the rest of the run takes."""
        self._bar.expect(seconds)

    def announce(self, run: str, shorter: str) -> None:
        """Describe a long run in one line, once.

        Args:
            run: its size.
            shorter: the options that make it shorter.
        """
        left = self._bar.left
        if left is not None and left > LONG and not self._announced:
            self._announced = True
            line = f"{run}: about {format_time(left)}; {shorter}"
            logger.info("%s", line)
            self._logged = perf_counter()
            self._bar.note(line)

    def begin_training(self, steps: int, step_seconds: float) -> None:
        """Begin a training whose steps took this long so far."""
        self.begin("recovery")
        self._steps, self._done = steps, 0
        self._after = max((self._bar.left or 0.0) - steps * step_seconds, 0.0)

    def step(self) -> None:
        """Count a step of the training."""
        self._done += 1
        each = (perf_counter() - self._since) / self._done
        self.expect((self._steps - self._done) * each + self._after)
        self._log()

    def count_rows(self, done: int, rows: int) -> None:
        """Count the finished rows of A; in the first stage, extrapolate to all stages."""
        self._log()
        if self._stages is None:
            return
        now = perf_counter()
        passed = now - self._since
        if self._first is None or done <= self._first[0]:  # the rows may be computed in passes
            self._first = done, now
            if done < FIRST_SHARE * rows and passed < PATIENCE:
                return
            each = passed / done
        else:
            before, then = self._first
            each = (now - then) / (done - before)
        self.expect(self._stages * (1 + SOLVE) * each * rows - passed)

    def count_share(self, share: float, began: float) -> None:
        """Extrapolate from a part of the first stage to all stages.

        Args:
            share: the part that is done, in (0, 1].
            began: when the stage began, by `time.perf_counter`.
        """
        if self._stages is not None:
            passed = perf_counter() - began
            self.expect(self._stages * passed / share - passed)

    def extrapolate_stages(self, seconds: Sequence[float], left: int) -> None:
        """Estimate the time of the remaining stages from that of the finished ones.

        Args:
            seconds: the time of each finished stage; without any, `count_rows` extrapolates.
            left: the largest number of stages that follow.
        """
        recent = seconds[-RECENT:]
        self._stages = None if recent else left
        if recent:
            self.expect(left * sum(recent) / len(recent))
