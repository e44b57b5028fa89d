"""The budget of a run with recovery, and the division of its training steps among the stages.

A budget limits the time of a run. A name also limits the training steps, so that a small network,
or a fast machine, does not train longer than is useful. The steps are planned with costs that were
measured before the first stage. The plan is part of the stored state of a run, so that a resumed
run follows the same plan.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from chita.errors import ChitaError, is_number

STEPS_IN_STAGE = 60  # the least steps of a stage, if there are several stages
MOST_STAGES = 16
LAST_SHARE = 0.25  # of the steps, in the last stage
CHECKS = 4  # held-out losses in a stage: mask alone, before and after training, measurement
CONTESTS = 2  # comparisons of all candidates before the first stage
PROBE_SHARE = 0.15  # of the steps, for the comparison of candidates
PROBES = range(5, 51)  # the steps of one candidate in a comparison
SPARE = 0.92  # the share of the time that a plan uses
MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class Budget:
    """Limits on the time and the training of a run.

    Attributes:
        seconds: the longest time of the run; infinite without a limit.
        passes: the most passes over the samples, unless they are few.
        least_steps: the steps that are allowed even if they exceed `passes`.
        most_passes: the most passes; `least_steps` does not exceed them either.
        most_steps: the most steps.
        samples: the most samples to train on.
        rows: n, the rows of A.
    """

    seconds: float
    passes: float = math.inf
    least_steps: float = math.inf
    most_passes: float = 500
    most_steps: float = MOST_STEPS
    samples: float = math.inf
    rows: int = 400

    def useful_steps(self, samples: int, batch: int) -> int:
        """Return the most steps, whatever they cost.

        Args:
            samples: the number of samples to train on.
            batch: the samples of a step.
        """
        a_pass = samples / batch
        most = min(self.most_steps, max(self.most_passes * a_pass, 1))
        return int(min(max(self.passes * a_pass, self.least_steps), most))


BUDGETS = {
    "fast": Budget(112, passes=10, least_steps=600, most_steps=4000, samples=8192, rows=128),
    "balanced": Budget(420, passes=45, least_steps=4000, most_steps=16_000),
    "best": Budget(3600, passes=200, least_steps=16_000, most_steps=100_000, rows=1000),
}
_STEPS = re.compile(r"(\d+) steps?")
WHAT = f"a number of seconds, 'N steps', or one of {', '.join(map(repr, BUDGETS))}"


def parse_budget(name: str, given: Any) -> Budget:
    """Return the budget that a value stands for: seconds, a name, or a number of steps.

    Args:
        name: the name of the argument, for the error message.
        given: the value of the argument.
    """
    if isinstance(given, str) and given in BUDGETS:
        return BUDGETS[given]
    if isinstance(given, str) and (found := _STEPS.fullmatch(given)) and int(found[1]) > 0:
        steps = min(int(found[1]), MOST_STEPS)
        return Budget(math.inf, least_steps=steps, most_passes=math.inf, most_steps=steps)
    if is_number(given) and math.isfinite(given) and given > 0:
        return Budget(float(given), most_passes=math.inf)
    raise ChitaError(f"{name} must be {WHAT}, got {given!r}")


@dataclass(frozen=True)
class Costs:
    """What the parts of a run cost.

    Attributes:
        step: the seconds of a training step.
        check: the seconds of the losses on held-out samples.
        entrants: the candidates that are compared after some training; 0 if none is.
        stages: the number of stages, if it is given.
    """

    step: float
    check: float
    entrants: int = 0
    stages: int | None = None

    def seconds(self, steps: int) -> float:
        """Return the time of a run with this many training steps, which increases with them."""
        compared = self._comparisons(steps) * (self.probe_steps(steps) * self.step + self.check)
        return steps * self.step + self.stages_for(steps) * CHECKS * self.check + compared

    def affordable_steps(self, seconds: float) -> int:
        """Return the most training steps that take at most this time; 0 if one takes longer."""
        return bisect_right(range(1, MOST_STEPS + 1), seconds, key=self.seconds)

    def stages_for(self, steps: int) -> int:
        """Return how many stages to divide the training into."""
        return self.stages or max(1, min(steps // STEPS_IN_STAGE, MOST_STAGES))

    def probe_steps(self, steps: int) -> int:
        """Return how many steps to train a candidate for, before candidates are compared."""
        wanted = int(PROBE_SHARE * steps / max(self._comparisons(steps), 1))
        return max(PROBES.start, min(wanted, PROBES.stop - 1))

    def _comparisons(self, steps: int) -> int:
        """Return the trainings of candidates: of all in each contest, and of two in each stage."""
        if self.entrants < 2:
            return 0
        return CONTESTS * self.entrants + 2 * self.stages_for(steps)


@dataclass(frozen=True)
class Plan:
    """What a run does, stage by stage.

    Attributes:
        rate: the highest relative rate of the training.
        sparsities: the sparsity of each stage.
        steps: the training steps of each stage.
        probe: the training steps of a candidate, before candidates are compared.
    """

    rate: float
    sparsities: list[float]
    steps: list[int]
    probe: int


def divide_steps(steps: int, stages: int) -> list[int]:
    """Divide the steps among the stages: the last one gets a larger share, the others the same."""
    if stages == 1:
        return [steps]
    last = max(int(LAST_SHARE * steps), -(-steps // stages))
    each = max((steps - last) // (stages - 1), 1)
    return [each] * (stages - 1) + [max(steps - each * (stages - 1), 1)]
