"""The sparsity of each stage: the sequence tau_1 <= ... <= tau_f of CHITA++ (algorithm 1).

A schedule plans all stages before the run. A `StagePath` without a plan decides during the run:
where the loss does not rise, a stage covers twice an even step, and the stages saved make the steps
smaller where the loss does rise. Stages that stay at the target move the remaining weights and
exchange some; the path ends when the loss no longer falls there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol

from chita.errors import ChitaError, is_number, is_share, require

FAST = 2.0  # the factor by which a stage exceeds an even step where the loss does not rise
MANY = 4  # with fewer stages left, none is saved
RISE = 0.01  # a smaller relative change of the loss counts neither as a rise nor as a fall
LEAST = 0.01  # the least part of the remaining weights that a stage removes
PATIENCE = 3  # stages at the target within which the loss must fall
FIRST_RISE = 0.25  # a run starts where the mask alone raises the loss by this part
BISECTIONS = 6
CLOSE = 0.02  # the search for a floor ends at this fraction of the density, or
FINEST = 1e-4  # at this fraction of the weights

# A mesh maps (i, last, ratio) to the fraction of the way from the first sparsity to the target that
# step i of 0, ..., last has covered; `ratio` is the target density divided by the first density.
Mesh = Callable[[int, int, float], float]


def _exponential(i: int, last: int, ratio: float) -> float:
    """Cover half of the remaining way at each step, as in the paper's experiments.

    The factor 1 / (1 - 2^-last) makes the last step reach the target. Negative powers underflow to
    zero, so `last` may be large.
    """
    return (1 - 2.0**-i) / (1 - 2.0**-last)


def _geometric(i: int, last: int, ratio: float) -> float:
    """Divide the density by the same number at each step: steps are small near the target."""
    return (1 - ratio ** (i / last)) / (1 - ratio) if ratio < 1 else i / last


def _linear(i: int, last: int, ratio: float) -> float:
    """Add the same to the sparsity at each step."""
    return i / last


def _constant(i: int, last: int, ratio: float) -> float:
    """Stay at the target."""
    return 1.0


def _polynomial(i: int, last: int, ratio: float) -> float:
    """Follow the cubic of Zhu and Gupta."""
    return 1 - (1 - i / last) ** 3


MESHES: dict[str, Mesh] = {
    "exponential": _exponential,
    "geometric": _geometric,
    "linear": _linear,
    "constant": _constant,
    "polynomial": _polynomial,
}


def sparsities(
    schedule: str, target: float, *, stages: int, start: float, hold: float
) -> list[float]:
    """Return the sparsity of each stage: non-decreasing, the last exactly `target`.

    Args:
        schedule: a name in MESHES.
        target: the final sparsity, in [0, 1).
        stages: f, the number of stages.
        start: tau_1, the sparsity of the first stage (the target, if that is lower).
        hold: the fraction of the stages, at the end, that stay at the target.
    """
    if schedule not in MESHES:
        raise ChitaError(f"schedule must be one of {sorted(MESHES)}, got {schedule!r}")
    if not (isinstance(stages, Integral) and stages >= 1):
        raise ChitaError(f"stages must be an integer of at least 1, got {stages!r}")
    for name, value in (("start", start), ("hold", hold)):
        if not 0 <= value < 1:
            raise ChitaError(f"{name} must be in [0, 1), got {value!r}")
    start = min(start, target)
    held = min(int(hold * stages), stages - 1)
    rising = stages - held
    mesh, last, ratio = MESHES[schedule], rising - 1, (1 - target) / (1 - start)
    shares = (mesh(i, last, ratio) for i in range(last))
    # Rounding may move start + (target - start) beyond the target.
    ramp = [min(start + (target - start) * share, target) for share in shares]
    return ramp + [target] * (held + 1)


class FinishedStage(Protocol):
    """The properties of a finished stage that a path reads; `StageRow` has them."""

    @property
    def sparsity(self) -> float:
        """The target of the stage."""

    @property
    def accepted(self) -> bool:
        """Whether the floor holds."""

    @property
    def choice_loss(self) -> float | None:
        """The loss on the samples by which the stage was chosen."""


@dataclass(frozen=True)
class StagePath:
    """The way from the first sparsity to the target: planned, or on Zhu and Gupta's cubic.

    Attributes:
        start: the sparsity of the first stage.
        target: the sparsity of the last stage.
        stages: the largest number of stages.
        hold: the fraction of the stages, at the end, that stay at the target.
        plan: the sparsity of each stage, if a schedule was given. It ends at the first stage that
            is not accepted, where the search for the floor begins.
        first: the sparsity of the first stage, if it is higher than `start`.
    """

    start: float
    target: float
    stages: int
    hold: float = 0.0
    plan: Sequence[float] | None = None
    first: float | None = None

    def starting_late(self, loss: Callable[[float], float]) -> StagePath:
        """Return the path from the highest sparsity that raises the loss little.

        The first stages are the most expensive, and what they gain is lost again at higher
        sparsities.

        Args:
            loss: sparsity -> the held-out loss of the weights, pruned without an update.
        """
        limit = (1 + FIRST_RISE) * loss(0.0)
        first = highest_sparsity(loss, limit, min(self.start, self.target), self.target)
        return replace(self, first=first)

    def next(self, rows: Sequence[FinishedStage]) -> float | None:
        """Return the sparsity of the next stage; None after the last one.

        The sparsity of a stage that was not accepted is too high: the next stage bisects the
        interval between it and the last accepted one.

        Args:
            rows: the finished stages.
        """
        if len(rows) == self.stages:
            return None
        reached = [row for row in rows if row.accepted]
        too_high = min((row.sparsity for row in rows if not row.accepted), default=None)
        last = reached[-1].sparsity if reached else 0.0
        if too_high is not None:
            if too_high - last <= max(CLOSE * (1 - too_high), FINEST):
                return None
            return (last + too_high) / 2
        if self.plan is not None:
            return self.plan[len(rows)]
        held = int(self.hold * self.stages)
        if last == self.target and reached:
            return self.target if _worth_staying(reached, held) else None
        return self._forward(reached, self.stages - held - len(rows) - self._skipped(reached))

    def _skipped(self, reached: Sequence[FinishedStage]) -> int:
        """Return the number of stages that the first one saves by starting later."""
        return round(self._way(reached[0].sparsity) * self.stages / FAST) if reached else 0

    def _forward(self, reached: Sequence[FinishedStage], left: int) -> float:
        if left <= 1:
            return self.target
        if not reached:
            return min(self.start if self.first is None else self.first, self.target)
        last = reached[-1].sparsity
        way = self._way(last)
        even = (1 - way) / left
        fast = left >= MANY and not _rising(reached)
        least = 1 - (1 - LEAST) * (1 - last)
        return min(max(self._sparsity(way + (FAST * even if fast else even)), least), self.target)

    def _sparsity(self, way: float) -> float:
        start = min(self.start, self.target)
        reached = start + (self.target - start) * (1 - (1 - min(way, 1.0)) ** 3)
        return min(reached, self.target)  # rounding may exceed it

    def _way(self, sparsity: float) -> float:
        """Return the fraction of the way at which a sparsity lies: the inverse of the cubic."""
        start = min(self.start, self.target)
        if self.target <= start:
            return 1.0
        left = min(max(1 - (sparsity - start) / (self.target - start), 0.0), 1.0)
        return 1.0 - float(left ** (1 / 3))


def highest_sparsity(
    loss: Callable[[float], float], limit: float, lowest: float, highest: float
) -> float:
    """Return about the highest sparsity whose loss is at most a limit, by bisection.

    Args:
        loss: sparsity -> loss, which is assumed to rise.
        limit: the largest loss.
        lowest: the result if no other sparsity that is tried satisfies the limit.
        highest: the highest sparsity to try.
    """
    if loss(highest) <= limit:
        return highest
    for _ in range(BISECTIONS):
        between = (lowest + highest) / 2
        if loss(between) <= limit:
            lowest = between
        else:
            highest = between
    return lowest


def _rising(rows: Sequence[FinishedStage]) -> bool:
    """Return whether the loss rose at the last stage, or is unknown."""
    losses = [row.choice_loss for row in rows[-2:]]
    if len(losses) < 2 or losses[0] is None or losses[1] is None:
        return True
    return losses[1] > losses[0] * (1 + RISE)


def _worth_staying(rows: Sequence[FinishedStage], held: int) -> bool:
    """Return whether to add a stage at the target.

    Args:
        rows: the stages so far, the last of them at the target.
        held: the stages at the target that are run even if the loss does not fall.
    """
    losses = [row.choice_loss for row in rows if row.sparsity == rows[-1].sparsity]
    if len(losses) <= max(held, PATIENCE):
        return True
    before, last = losses[-1 - PATIENCE], losses[-1]
    return before is None or last is None or last < before * (1 - RISE)


def check_sparsity(name: str, value: Any) -> None:
    """Raise a ChitaError unless `value` is in [0, 1); hint at patterns and at values in percent."""
    what = 'a number in [0, 1), or a pattern such as "2:4"'
    if isinstance(value, str) and ":" in value:
        what = f"a number in [0, 1), with the pattern as pattern={value!r}"
    elif is_number(value) and 1 < value < 100:
        what = f"a number in [0, 1), such as {value / 100:g} for {value:g} %"
    require(name, value, is_share, what)
