"""The stages of a run; of a guarded one decided as it goes: small steps where the loss rises.

Where the loss does not rise a stage goes twice as far as an even walk would, and the stages saved
make the steps smaller where it does. All stages are used, and the last ends at the target: stages
held there move the weights that are left, and exchange some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chita.pruning.result import StageRow

FAST = 2.0  # times an even step
MANY = 4  # with fewer stages left, none is to be saved
RISE = 0.01  # a loss higher than the last by less than this share has not risen
CLOSE = 0.02  # a search for the floor ends at this share of the density, or
FINEST = 1e-4  # this share of the weights


@dataclass(frozen=True)
class StagePath:
    """From the first sparsity to the target, as planned or else on Zhu and Gupta's cubic.

    Attributes:
        start: the sparsity of the first stage.
        target: of the last.
        stages: how many there are at most.
        hold: the last share of them that stays at the target.
        plan: the sparsity of each stage, where a schedule was asked for; a floor that is not kept
            ends it, and the search begins.
    """

    start: float
    target: float
    stages: int
    hold: float = 0.0
    plan: Sequence[float] | None = None

    def next(self, rows: Sequence[StageRow]) -> float | None:
        """The sparsity of the next stage after these; None if there is none.

        Stages that were not accepted bound what comes: their sparsity is too high, and the middle
        between it and the last accepted one is next.
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
        return self._forward(reached, self.stages - held - len(rows))

    def _forward(self, reached: Sequence[StageRow], left: int) -> float:
        if left <= 1:
            return self.target
        if not reached:
            return min(self.start, self.target)
        way = self._way(reached[-1].sparsity)
        even = (1 - way) / left
        fast = left >= MANY and not _rising(reached)
        return self._sparsity(way + (FAST * even if fast else even))

    def _sparsity(self, way: float) -> float:
        start = min(self.start, self.target)
        reached = start + (self.target - start) * (1 - (1 - min(way, 1.0)) ** 3)
        return min(reached, self.target)  # rounding may go beyond

    def _way(self, sparsity: float) -> float:
        """The share of the way at which a sparsity lies: the cubic, inverted."""
        start = min(self.start, self.target)
        if self.target <= start:
            return 1.0
        left = min(max(1 - (sparsity - start) / (self.target - start), 0.0), 1.0)
        return 1.0 - float(left ** (1 / 3))


def _rising(rows: Sequence[StageRow]) -> bool:
    """Whether the loss rose at the last stage, or is unknown."""
    losses = [row.choice_loss for row in rows[-2:]]
    if len(losses) < 2 or losses[0] is None or losses[1] is None:
        return True
    return losses[1] > losses[0] * (1 + RISE)
