"""When pruning steps happen during training, to which sparsity, and the learning rate between them.

Time is counted in epochs here. A loop that counts the steps of its optimizer instead uses the same
schedules: `every=1000` is then a thousand of these.
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

Unit = Literal["epoch", "step"]  # what a schedule counts


@dataclass(frozen=True)
class PruningSchedule:
    """Pruning steps, each before an epoch.

    Attributes:
        epochs: the epochs before which a pruning step happens, increasing; the first epoch is 0.
        sparsities: what each step prunes to, never falling.
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
                "each pruning step has one of both"
            )


def polynomial(
    target: float, *, first: float = 0.5, steps: int = 7, every: int = 12, begin: int = 0
) -> PruningSchedule:
    """Zhu and Gupta's cubic: target + (first - target) (1 - t / (steps - 1))^3 at step t.

    The defaults are the paper's: 50 % first, six more steps, 12 epochs between them. With 28 epochs
    after the last step there are 100.

    Args:
        target: the sparsity of the last step, in [0, 1).
        first: the sparsity of the first step (the target, if that is lower).
        steps: how many pruning steps there are.
        every: epochs between two of them.
        begin: the epoch before which the first one happens.
    """
    return _spread("polynomial", target, first=first, steps=steps, every=every, begin=begin)


def linear(
    target: float, *, first: float = 0.5, steps: int = 7, every: int = 12, begin: int = 0
) -> PruningSchedule:
    """Equal increments: first + (target - first) t / (steps - 1). Arguments as in `polynomial`."""
    return _spread("linear", target, first=first, steps=steps, every=every, begin=begin)


def one_shot(target: float, *, at: int = 0) -> PruningSchedule:
    """All at once before the epoch `at`; the epochs after it fine-tune."""
    return PruningSchedule((at,), (target,))


def cosine_restarts(
    epoch: float,
    schedule: PruningSchedule,
    total_epochs: int,
    *,
    highest: float = 0.1,
    lowest: float = 1e-5,
) -> float:
    """The paper's learning rate: half a cosine between two pruning steps, from the top at each.

    lowest + (highest - lowest) (1 + cos(pi (e - e1) / (e2 - e1))) / 2 between e1 and e2. The start
    and the end of training bound the first and the last stretch.

    Args:
        epoch: e, with the fraction of the epoch that is done; after the end, the rate is `lowest`.
        schedule: whose epochs restart the cosine.
        total_epochs: the end of training.
        highest: the rate at the start of each stretch.
        lowest: the rate that each stretch falls to.
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
    """The sparsities of successive pruning steps as plain numbers, if that is what they are."""
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
        raise ChitaError(f"sparsities must be numbers in [0, 1) that never fall, got {values}")
    return tuple(float(value) for value in values)


def check_unit(unit: Unit) -> Unit:
    """`unit`, if it is one: with a wrong one there would be no pruning at all."""
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
