"""The range test: find the relative rate of the training by the loss on held-out samples.

The test trains a pruned network for a few steps with several rates. It starts in the middle of the
grid and moves by a factor of about 3 while the held-out loss falls. Few steps favour small rates,
while a long training gains from larger ones. The test therefore returns the largest rate that
gains almost as much as the best one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from chita.pruning.budget import STEPS_IN_STAGE

HALF_DECADES = range(-8, -2)  # rate = 10^(i/2), 1e-4 to 0.03
MIDDLE = -4  # rate = 0.01
SLOWEST = 10 ** (HALF_DECADES[0] / 2)
TEST_STEPS = 20  # with each rate; fewer if the budget is small
LEAST_TEST_STEPS = 4
RATES = 4  # that are tested, usually
TIME_SHARE = 1 / 48  # of the time of a budget, for each rate
STEPS_SHARE = 1 / 6  # of the training steps, for each rate
ALMOST = 0.9  # the share of the best gain that a larger rate must have
LEAST_SHARE = 1e-3  # of kept weights, that the rate of a stage depends on
MOST_FASTER = 2.0  # the largest factor of the rate of a sparser network; docs/notes.md

LossAt = Callable[[float], float]  # rate -> the held-out loss after the steps of the test


def steps_of_test(steps: int, seconds: float, step_seconds: float) -> int:
    """Return for how many steps to test each rate; several rates must not use up the budget.

    Args:
        steps: the most training steps of the run.
        seconds: the time of the run; may be infinite.
        step_seconds: that of a step.
    """
    affordable = seconds / max(step_seconds, 1e-9)
    wanted = min(TEST_STEPS, TIME_SHARE * affordable, STEPS_SHARE * steps)
    return max(LEAST_TEST_STEPS, int(wanted))


def find_rate(loss_at: LossAt, before: float) -> float | None:
    """Return the largest good rate of the grid; None if no rate gives a finite loss.

    Args:
        loss_at: computes the held-out loss after some steps with a rate.
        before: the held-out loss before them.
    """
    losses: dict[int, float] = {}

    def loss(step: int) -> float:
        if step not in losses:
            found = loss_at(10 ** (step / 2)) if step in HALF_DECADES else math.inf
            losses[step] = found if math.isfinite(found) else math.inf
        return losses[step]

    best = MIDDLE
    while math.isinf(loss(best)) and best > HALF_DECADES[0]:
        best -= 1
    direction = 1 if loss(best + 1) < loss(best) else -1
    while loss(best + direction) < loss(best):
        best += direction
    if math.isinf(loss(best)):
        return None
    gain = before - loss(best)
    while gain > 0 and before - loss(best + 1) >= ALMOST * gain:
        best += 1
    return 10 ** (best / 2)


def rate_factor(share: float, tested: float, steps: int) -> float:
    """Return by how much the rate is higher for a network that is sparser than the tested one.

    Adam moves all k weights of an output channel by the same step times their size s, and mostly
    with one sign for each input. The output, of the order of s sqrt(k), changes by up to s k times
    the step. The same relative change needs a step proportional to 1 / sqrt(k). Short trainings
    favour small rates, and keep the one of the range test.

    Args:
        share: the share of the weights that are kept.
        tested: the share that the range test kept.
        steps: the steps of the training.
    """
    wanted, allowed = tested / max(share, LEAST_SHARE), steps / STEPS_IN_STAGE
    return math.sqrt(max(min(wanted, allowed, MOST_FASTER**2), 1.0))
