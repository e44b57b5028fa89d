"""ridge="auto": choose lambda by the loss on held-out calibration samples.

The quadratic model does not reveal how far it is valid; the true loss does. The first stage
descends over the paper's grid, a decade at a time. Later stages start from the last choice, since
the best lambda drifts from stage to stage. Both end with steps of half a decade. A search that
follows lambda with few solves looks at one side of the last choice only, and changes sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chita.pruning.held_out import LossesOf, PartLosses
from chita.solver.solve import Solution

HALF_DECADES = range(-10, 7)  # lambda = 10^(i/2), 1e-5 to 1e3: the paper's grid, twice as fine
MIDDLE = -4  # lambda = 0.01, where the first stage starts
DOWN, UP = -1, 1  # the sides of a lambda

Solve = Callable[[float], Solution]  # lambda -> the solution of the stage


@dataclass(frozen=True)
class Choice:
    """A solution, its lambda and its held-out losses (None without held-out samples)."""

    solution: Solution
    ridge: float
    losses: PartLosses | None

    @property
    def held_out_loss(self) -> float | None:
        """The mean of the losses."""
        return None if self.losses is None else self.losses.mean

    @property
    def rank(self) -> float:
        """The key by which choices are compared, the least first; a NaN comes last."""
        loss = self.held_out_loss
        return math.inf if loss is None or math.isnan(loss) else loss

    def surely_beats(self, other: Choice) -> bool:
        """Return whether the losses are lower than those of another choice on the same samples by
        more than the spread over the samples explains."""
        return (
            self.losses is not None
            and other.losses is not None
            and math.isfinite(self.rank)
            and self.losses.surely_below(other.losses)
        )


class RidgeSearch:
    """The search for lambda over the stages of one run.

    Args:
        given: the only lambda to try, or None to search.

    Attributes:
        last: the choice of the last stage in half-decades; the only state between stages.
    """

    def __init__(self, given: float | None = None) -> None:
        self.given = given
        self.last: int | None = None

    def choose(self, solve: Solve, losses_of: LossesOf) -> Choice:
        """Return the best lambda of this stage; its rank is infinite if no loss is finite."""
        return self._walk(solve, losses_of, fine=True)

    def look(self, solve: Solve, losses_of: LossesOf) -> Choice:
        """Return the best lambda up to a decade, which suffices for screening."""
        return self._walk(solve, losses_of, fine=False)

    def follow(self, solve: Solve, losses_of: LossesOf, side: int) -> Choice:
        """Return the best lambda on one side of the last choice, or of the best decade.

        Args:
            solve: solves the stage for a lambda.
            losses_of: computes the held-out losses.
            side: DOWN or UP.
        """
        return self._walk(solve, losses_of, fine=True, sides=(side,))

    def _walk(
        self,
        solve: Solve,
        losses_of: LossesOf,
        *,
        fine: bool,
        sides: Sequence[int] = (DOWN, UP),
    ) -> Choice:
        if self.given is not None:
            return _try(self.given, solve, losses_of)
        tried: dict[int, Choice] = {}

        def rank(step: int) -> float:
            if step not in tried:
                tried[step] = _try(10 ** (step / 2), solve, losses_of)
            return tried[step].rank

        here = downhill(rank, MIDDLE, 2) if self.last is None else self.last
        if math.isinf(rank(here)):
            here = min(HALF_DECADES[::2], key=rank)
        if fine:
            here = downhill(rank, here, 1, sides)
        if math.isfinite(rank(here)):
            self.last = here
        return tried[here]


def _try(ridge: float, solve: Solve, losses_of: LossesOf) -> Choice:
    solution = solve(ridge)
    return Choice(solution, ridge, losses_of(solution.w))


def downhill(
    rank: Callable[[int], float], here: int, stride: int, sides: Sequence[int] = (DOWN, UP)
) -> int:
    """Return a point of the grid that has no better neighbour on the given sides."""
    while True:
        near = [here, *(here + side * stride for side in sides)]
        best = min((step for step in near if step in HALF_DECADES), key=rank)  # `here` wins ties
        if best == here:
            return here
        here = best
