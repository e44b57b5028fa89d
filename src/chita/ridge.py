"""ridge="auto": lambda by the loss on held-out calibration samples.

The quadratic model cannot tell how far it is to be trusted; the true loss can. The first stage
looks over the paper's whole grid, later stages at the neighbours of the last choice, since what is
best drifts slowly from stage to stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor

from chita.errors import ChitaError
from chita.l0.solve import Solution

GRID = tuple(10.0**exponent for exponent in range(-5, 4))
STEP = math.sqrt(10.0)


@dataclass(frozen=True)
class Choice:
    """A solution, its ridge and the held-out loss that chose it (None if nothing was held out)."""

    solution: Solution
    ridge: float
    held_out_loss: float | None


class RidgeSearch:
    """The search for lambda over the stages of one run."""

    def __init__(self) -> None:
        self._last: float | None = None

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

        def best_of(ridges: Iterable[float]) -> Choice:
            tried = []
            for ridge in ridges:
                solution = solve(ridge)
                tried.append(Choice(solution, ridge, held_out_loss(solution.w)))
            return min(tried, key=_loss)

        if self._last is None:
            coarse = best_of(GRID)
            best = min(coarse, best_of([coarse.ridge / STEP, coarse.ridge * STEP]), key=_loss)
        else:
            best = best_of([self._last / STEP, self._last, self._last * STEP])
        if not math.isfinite(_loss(best)):
            raise ChitaError(
                f"ridge='auto': the loss on the held-out samples is {best.held_out_loss} for every "
                "ridge that was tried; the data must be finite, or give ridge a number"
            )
        self._last = best.ridge
        return best


def _loss(choice: Choice) -> float:
    loss = choice.held_out_loss
    return math.inf if loss is None or math.isnan(loss) else loss
