"""Timing: several ways to do the same work, timed in turns until one of them has won."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


WARM_UP = 3  # calls before the clock runs
SHORTEST = 1e-4  # seconds that a way has in a turn, at least
BUDGET = 0.5  # seconds for each way, if that leaves enough turns
TURNS = (11, 51)  # at least and at most


@dataclass(frozen=True)
class Timing:
    """Seconds of a call, one figure for each turn."""

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
        """How many times as fast as `other`, turn by turn: the quartiles."""
        return quartiles([b / a for a, b in zip(self.seconds, other.seconds, strict=True)])

    def beats(self, other: Timing) -> bool:
        """Whether the gain exceeds its spread: faster in three turns of four, and by the medians.

        A turn holds both, so that a slow moment of the machine does not hide a gain, nor make one.
        """
        return self.gains(other)[0] > 1 and self.median < other.median

    def to_dict(self) -> dict[str, float]:
        """Ready for JSON."""
        low, median, high = quartiles(self.seconds)
        return {"low": low, "median": median, "high": high}


def quartiles(figures: Sequence[float]) -> tuple[float, float, float]:
    """The first quartile, the median and the third."""
    low, median, high = statistics.quantiles(figures, n=4)
    return low, median, high


def race(
    ways: Mapping[str, Callable[[], object]], device: torch.device, *, budget: float = BUDGET
) -> dict[str, Timing]:
    """Time each way, all of them in each turn, so that a slow moment of the machine hits all.

    In a turn each way is called as often as the slowest has time for one call: all are exposed
    alike to what else the machine does.

    Args:
        ways: the work, by the name of each way to do it.
        device: where it is done; a GPU is waited for.
        budget: seconds for each way, if that leaves enough turns.
    """
    single = {name: _warm_up(work, device) for name, work in ways.items()}
    length = max(SHORTEST, *single.values())
    calls = {name: max(1, round(length / alone)) for name, alone in single.items()}
    turns = min(max(TURNS[0], int(budget / length)), TURNS[1])
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, work in ways.items():
            seconds[name].append(_turn(work, calls[name], device))
    return {name: Timing(tuple(found)) for name, found in seconds.items()}


def winner(timings: Mapping[str, Timing], dense: str) -> str | None:
    """The fastest of those that beat `dense`; None if nothing does."""
    better = {
        name: timing.median for name, timing in timings.items() if timing.beats(timings[dense])
    }
    return min(better, key=lambda name: better[name], default=None)


def _warm_up(work: Callable[[], object], device: torch.device) -> float:
    """The seconds of a call, roughly, once all is in place for it."""
    for _ in range(WARM_UP):
        work()
    return min(_turn(work, 1, device) for _ in range(WARM_UP))


def _turn(work: Callable[[], object], calls: int, device: torch.device) -> float:
    """Seconds of one of so many calls in a row."""

    def repeat() -> None:
        for _ in range(calls):
            work()

    return timed(repeat, device)[1] / calls
