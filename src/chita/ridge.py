"""ridge="auto": lambda by the loss on held-out calibration samples.

The quadratic model cannot tell how far it is to be trusted; the true loss can. The first stage
walks downhill over the paper's grid, a decade at a time, later stages start from the last choice,
since what is best drifts from stage to stage; both end half a decade at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from chita.errors import ChitaError
from chita.l0.solve import Solution

HALF_DECADES = range(-10, 7)  # lambda = 10^(i/2), from 1e-5 to 1e3: the paper's grid, twice as fine
MIDDLE = -4  # lambda = 0.01, where the first stage starts to look


@dataclass(frozen=True)
class Choice:
    """A solution, its ridge and the held-out loss that chose it (None if nothing was held out)."""

    solution: Solution
    ridge: float
    held_out_loss: float | None


class RidgeSearch:
    """The search for lambda over the stages of one run.

    Attributes:
        last: what the last stage chose, in half-decades: all that the next one goes by.
    """

    def __init__(self) -> None:
        self.last: int | None = None

    def choose(
        self, solve: Callable[[float], Solution], held_out_loss: Callable[[Tensor], float]
    ) -> Choice:
        """The best of this stage's candidates.

        Args:
            solve: lambda -> the solution of the stage.
            held_out_loss: weights (p,) -> the true loss on the held-out samples.

        Raises:
            ChitaError: the held-out loss is finite for no candidate.
        """
        tried: dict[int, Choice] = {}

        def loss(step: int) -> float:
            if step not in tried:
                solution = solve(10 ** (step / 2))
                tried[step] = Choice(solution, 10 ** (step / 2), held_out_loss(solution.w))
            return _no_nan(tried[step].held_out_loss)

        def downhill(here: int, stride: int) -> int:
            near = [step for step in (here, here - stride, here + stride) if step in HALF_DECADES]
            best = min(near, key=loss)  # the first, which is here, wins ties
            return here if best == here else downhill(best, stride)

        here = downhill(MIDDLE, 2) if self.last is None else self.last
        if math.isinf(loss(here)):
            here = min(HALF_DECADES[::2], key=loss)
        here = downhill(here, 1)
        choice = tried[here]
        if math.isinf(loss(here)):
            raise ChitaError(
                f"ridge='auto': the held-out loss is {choice.held_out_loss} for every ridge that "
                "was tried; the data must be finite, or give ridge a number"
            )
        self.last = here
        return choice


def _no_nan(loss: float | None) -> float:
    return math.inf if loss is None or math.isnan(loss) else loss
