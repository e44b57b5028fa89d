"""Timing: time several ways to do the same work in alternating turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import torch

Result = TypeVar("Result")


def timed(work: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """Return the result of the work, and the seconds it takes."""
    _wait(device)
    began = perf_counter()
    result = work()
    _wait(device)
    return result, perf_counter() - began


def _wait(device: torch.device) -> None:
    """Wait until a GPU has finished all of its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


WARM_UP = 3  # calls before timing starts
SHORTEST = 1e-4  # the least seconds of one way in a turn
BUDGET = 0.5  # seconds for each way, if that allows enough turns
TURNS = (11, 51)  # the least and the most turns
LONG = 1.0  # seconds of a call whose warm-up is one call, since its noise averages out
LONG_TURNS = 5  # the least turns of such calls


@dataclass(frozen=True)
class Timing:
    """The seconds of a call in each turn."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The interquartile range."""
        low, _, high = quartiles(self.seconds)
        return high - low

    def gains(self, other: Timing) -> tuple[float, float, float]:
        """Return the quartiles of the speed relative to `other`, turn by turn."""
        return quartiles([b / a for a, b in zip(self.seconds, other.seconds, strict=True)])

    def beats(self, other: Timing) -> bool:
        """Return whether this is faster in three turns of four, and by the medians.

        Each turn times both, so a slow moment of the machine neither hides a gain nor makes one.
        """
        return self.gains(other)[0] > 1 and self.median < other.median

    def to_dict(self) -> dict[str, float]:
        """Convert to a dict for JSON."""
        low, median, high = quartiles(self.seconds)
        return {"low": low, "median": median, "high": high}


def quartiles(figures: Sequence[float]) -> tuple[float, float, float]:
    """Return the first quartile, the median and the third quartile."""
    low, median, high = statistics.quantiles(figures, n=4)
    return low, median, high


def race(
    ways: Mapping[str, Callable[[], object]], device: torch.device, *, budget: float = BUDGET
) -> dict[str, Timing]:
    """Time all ways in each turn, so that a slow moment of the machine affects all of them.

    In a turn, each way runs for as long as one call of the slowest way takes, so that other work of
    the machine affects all ways equally.

    Args:
        ways: the work, by the name of each way to do it.
        device: the device of the work; timing waits for a GPU.
        budget: the seconds for each way, if that allows enough turns.
    """
    single = {name: _warm_up(work, device) for name, work in ways.items()}
    length = max(SHORTEST, *single.values())
    calls = {name: max(1, round(length / alone)) for name, alone in single.items()}
    least = TURNS[0] if length < LONG else LONG_TURNS
    turns = min(max(least, int(budget / length)), TURNS[1])
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, work in ways.items():
            seconds[name].append(_turn(work, calls[name], device))
    return {name: Timing(tuple(found)) for name, found in seconds.items()}


def winner(timings: Mapping[str, Timing], dense: str) -> str | None:
    """Return the fastest way that beats `dense`; None if no way does."""
    better = {
        name: timing.median for name, timing in timings.items() if timing.beats(timings[dense])
    }
    return min(better, key=lambda name: better[name], default=None)


def _warm_up(work: Callable[[], object], device: torch.device) -> float:
    """Call the work a few times, and return the approximate seconds of a call."""
    first = _turn(work, 1, device)
    if first > LONG:
        return first
    for _ in range(WARM_UP - 1):
        work()
    return min(_turn(work, 1, device) for _ in range(WARM_UP))


def _turn(work: Callable[[], object], calls: int, device: torch.device) -> float:
    """Return the mean seconds of a call over `calls` consecutive calls."""

    def repeat() -> None:
        for _ in range(calls):
            work()

    return timed(repeat, device)[1] / calls
