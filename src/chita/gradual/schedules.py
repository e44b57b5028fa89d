"""Schedules of pruning steps during training, and the learning rate between them.

Time is counted in epochs. A training loop that counts optimizer steps can use the same schedules:
`every=1000` then means 1000 steps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Literal, get_args

from chita.errors import ChitaError
from chita.pruning.schedule import sparsities as spread

Unit = Literal["epoch", "step"]  # the unit of time of a schedule


@dataclass(frozen=True)
class PruningSchedule:
    """Pruning steps, each of which happens before an epoch.

    Attributes:
        epochs: the epochs before which a pruning step happens, increasing; the first epoch is 0.
        sparsities: the sparsity after each step, non-decreasing.
    """

    epochs: tuple[int, ...]
    sparsities: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "epochs", tuple(self.epochs))
        object.__setattr__(self, "sparsities", check_sparsities(self.sparsities))
        if not (
            all(isinstance(epoch, Integral) and epoch >= 0 for epoch in self.epochs)
            and all(one < next_one for one, next_one in pairwise(self.epochs))
        ):
            raise ChitaError(f"epochs must be increasing integers from 0 on, got {self.epochs}")
        if len(self.epochs) != len(self.sparsities):
            raise ChitaError(
                f"{len(self.epochs)} epochs with {len(self.sparsities)} sparsities: "
                "give one epoch and one sparsity for each pruning step"
            )


def polynomial(
    target: float, *, first: float = 0.5, steps: int = 7, every: int = 12, begin: int = 0
) -> PruningSchedule:
    """Return Zhu and Gupta's cubic: target + (first - target) (1 - t / (steps - 1))^3 at step t.

    The defaults are the paper's: 50 % first, then six more steps with 12 epochs between them. With
    28 epochs after the last step, training takes 100 epochs.

    Args:
        target: the sparsity of the last step, in [0, 1).
        first: the sparsity of the first step, at most the target.
        steps: the number of pruning steps.
        every: the number of epochs between two steps.
        begin: the epoch before which the first step happens.
    """
    return _spread("polynomial", target, first=first, steps=steps, every=every, begin=begin)


def linear(
    target: float, *, first: float = 0.5, steps: int = 7, every: int = 12, begin: int = 0
) -> PruningSchedule:
    """Return equal increments, first + (target - first) t / (steps - 1).

    The arguments are those of `polynomial`.
    """
    return _spread("linear", target, first=first, steps=steps, every=every, begin=begin)


def one_shot(target: float, *, at: int = 0) -> PruningSchedule:
    """Prune once, before the epoch `at`; the epochs after it fine-tune."""
    return PruningSchedule((at,), (target,))


def cosine_restarts(
    epoch: float,
    schedule: PruningSchedule,
    total_epochs: int,
    *,
    highest: float = 0.1,
    lowest: float = 1e-5,
) -> float:
    """Return the paper's learning rate: a half cosine that restarts at each pruning step.

    It is lowest + (highest - lowest) (1 + cos(pi (e - e1) / (e2 - e1))) / 2 between the pruning
    steps e1 and e2. The first interval begins, and the last one ends, with the training.

    Args:
        epoch: e, a fraction included; after the end the rate is `lowest`.
        schedule: the pruning steps, at which the cosine restarts.
        total_epochs: the number of epochs of the training.
        highest: the rate at the start of each interval.
        lowest: the rate at the end of each interval.
    """
    if schedule.epochs[-1] >= total_epochs:
        raise ChitaError(
            f"total_epochs={total_epochs} ends before the last pruning step, which comes before "
            f"epoch {schedule.epochs[-1]}"
        )
    bounds = sorted({0, *schedule.epochs, total_epochs})
    epoch = min(max(epoch, 0), total_epochs)
    after = min(bisect_right(bounds, epoch), len(bounds) - 1)
    start, end = bounds[after - 1], bounds[after]
    done = (epoch - start) / (end - start)
    return lowest + 0.5 * (highest - lowest) * (1 + math.cos(math.pi * done))


def check_sparsities(given: Iterable[float]) -> tuple[float, ...]:
    """Check the sparsities of successive pruning steps and return them as numbers."""
    if not isinstance(given, Iterable):
        raise ChitaError(
            "a schedule must be a PruningSchedule, or the sparsities of all pruning steps such as "
            f"[0.5, 0.9], got {given!r}"
        )
    values = tuple(given)
    if not (
        values
        and all(isinstance(value, Real) and 0 <= value < 1 for value in values)
        and all(one <= next_one for one, next_one in pairwise(values))
    ):
        raise ChitaError(f"sparsities must be non-decreasing numbers in [0, 1), got {values}")
    return tuple(float(value) for value in values)


def check_unit(unit: Unit) -> Unit:
    """Check a unit of time and return it."""
    if unit not in get_args(Unit):
        raise ChitaError(f"unit must be one of {list(get_args(Unit))}, got {unit!r}")
    return unit


def _spread(
    mesh: str, target: float, *, first: float, steps: int, every: int, begin: int
) -> PruningSchedule:
    for name, value in (("steps", steps), ("every", every)):
        if not (isinstance(value, Integral) and value >= 1):
            raise ChitaError(f"{name} must be an integer of at least 1, got {value!r}")
    (target,) = check_sparsities([target])
    rising = spread(mesh, target, stages=steps, start=first, hold=0.0)
    return PruningSchedule(tuple(begin + every * step for step in range(steps)), tuple(rising))
