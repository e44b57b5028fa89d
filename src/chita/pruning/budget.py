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
LEAST_TRIED = 4  # stages of a run whose first stage trains on several tasks
CHECKS = 4  # held-out losses in a stage: mask alone, before and after training, measurement
CONTESTS = 2  # comparisons of all candidates before the first stage
CONFIRMED = 2  # trainings with the steps of a stage, of a solve and its mask
PROBE_SHARE = 0.15  # of the steps, for the comparison of candidates
PROBES = range(5, 31)  # the steps of one candidate in a comparison
SPARE = 0.92  # the share of the time that a plan uses
MOST_STEPS = 1_000_000
MOST_SAMPLES = 1 << 18
FLOOR_STEPS = 2 * STEPS_IN_STAGE  # of a named budget, on a machine of any speed


@dataclass(frozen=True)
class Budget:
    """Limits on the time and the training of a run.

    Attributes:
        seconds: the longest time of the run; infinite without a limit.
        passes: the most passes over the samples, unless they are few.
        least_steps: the steps that are allowed even if they exceed `passes`.
        most_passes: the most passes; `least_steps` does not exceed them either.
        most_steps: the most steps.
        floor_steps: the steps that are planned even if they take longer than `seconds`. A name
            must work on any machine; a number of seconds is a limit.
        samples: the most samples to train on, also if the data never end.
        rows: n, the rows of A.
        matrix_bytes: the memory of A, which limits the rows of a large network.
    """

    seconds: float
    passes: float = math.inf
    least_steps: float = math.inf
    most_passes: float = 350
    most_steps: float = MOST_STEPS
    floor_steps: int = 0
    samples: int = MOST_SAMPLES
    rows: int = 400
    matrix_bytes: int = 2 << 30

    @property
    def planned_seconds(self) -> float:
        """The time that a plan uses."""
        return SPARE * self.seconds

    def useful_steps(self, samples: int, batch: int) -> int:
        """Return the most steps, whatever they cost.

        Args:
            samples: the number of samples to train on.
            batch: the samples of a step.
        """
        a_pass = samples / batch
        most = min(self.most_steps, max(self.most_passes * a_pass, 1))
        return int(min(max(self.passes * a_pass, self.least_steps), most))

    def batch(self, batch: int, step: float, least: int) -> int:
        """Return the samples of a step with which `floor_steps` fit into the time.

        A step of a large network on a small machine takes seconds for each sample. Without smaller
        steps, the least steps of a named budget would take many times its time.

        Args:
            batch: the samples of a step whose time was measured.
            step: the seconds of that step.
            least: the least samples of a step.
        """
        if not self.floor_steps:
            return batch
        share = self.seconds / (self.floor_steps * max(step, 1e-9))
        return min(batch, max(least, int(share * batch)))

    def steps(self, samples: int, batch: int, costs: Costs, elapsed: float) -> int:
        """Return how many steps to train for; 0 if the time does not suffice for one.

        Args:
            samples: the number of samples to train on.
            batch: the samples of a step.
            costs: the measured costs.
            elapsed: the seconds that have passed.
        """
        useful = self.useful_steps(samples, batch)
        if math.isinf(self.seconds):
            return useful
        affordable = costs.affordable_steps(self.planned_seconds - elapsed)
        return min(useful, max(affordable, self.floor_steps))


BUDGETS = {
    "fast": Budget(
        112,
        passes=10,
        least_steps=600,
        most_steps=4000,
        floor_steps=FLOOR_STEPS,
        samples=8192,
        rows=128,
        matrix_bytes=1 << 30,
    ),
    "balanced": Budget(
        420, passes=40, least_steps=2800, most_steps=16_000, floor_steps=FLOOR_STEPS
    ),
    "best": Budget(
        3600,
        passes=200,
        least_steps=16_000,
        most_steps=100_000,
        floor_steps=FLOOR_STEPS,
        rows=1000,
        matrix_bytes=8 << 30,
    ),
}
_STEPS = re.compile(r"(\d+) steps?")
NAMES = ", ".join(map(repr, BUDGETS))
WHAT = f"a positive number of seconds, 'N steps', such as '1000 steps', or one of {NAMES}"


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
        tasks: the tasks that the training may use.
        stage: the seconds of the gradients and the solves of a stage, if they are known.
        contests: the comparisons of all candidates before the first stage.
    """

    step: float
    check: float
    entrants: int = 0
    stages: int | None = None
    tasks: int = 1
    stage: float = 0.0
    contests: int = CONTESTS

    def seconds(self, steps: int) -> float:
        """Return the time of a run with this many training steps.

        It increases with the steps, except where a further stage shortens the others: the first one
        may train on each task, and a solve and its mask are compared after as many steps.
        """
        compared = self._comparisons(steps) * (self.probe_steps(steps) * self.step + self.check)
        stages = self.stages_for(steps)
        if self.contests and self.entrants > 1:
            compared += CONFIRMED * (steps / stages * self.step + self.check)
        trained = steps * (1 + self.tries_tasks(steps) / stages)
        return trained * self.step + stages * (CHECKS * self.check + self.stage) + compared

    def affordable_steps(self, seconds: float) -> int:
        """Return training steps that fit into this time where one more does not; 0 if none fits.

        A larger number may fit again, since `seconds` may fall where a stage is added.
        """
        return bisect_right(range(1, MOST_STEPS + 1), seconds, key=self.seconds)

    def stages_for(self, steps: int) -> int:
        """Return how many stages to divide the training into."""
        return self.stages or max(1, min(steps // STEPS_IN_STAGE, MOST_STAGES))

    def tries_tasks(self, steps: int) -> bool:
        """Return whether the first stage trains on each task; few stages are too long for it."""
        return self.tasks > 1 and self.stages_for(steps) >= LEAST_TRIED

    def probe_steps(self, steps: int) -> int:
        """Return how many steps to train a candidate for, before candidates are compared."""
        comparisons = self._comparisons(steps)
        if not comparisons:  # unless a mask empties a layer
            return PROBES.start
        wanted = int(PROBE_SHARE * steps / comparisons)
        return max(PROBES.start, min(wanted, PROBES.stop - 1))

    def _comparisons(self, steps: int) -> int:
        """Return the trainings of candidates: of all in each contest, and of two in each stage."""
        if self.entrants < 2:
            return 0
        return self.contests * self.entrants + 2 * self.stages_for(steps)


@dataclass(frozen=True)
class RecoveryPlan:
    """What a run with recovery does, stage by stage.

    Attributes:
        rate: the relative rate that the range test found.
        sparsities: the sparsity of each stage.
        steps: the training steps of each stage.
        probe: the training steps of a candidate, before candidates are compared.
        tries_tasks: whether the first stage trains on each task, to choose one.
        batch: the samples of a step.
        density: the share of the weights that the range test kept.
    """

    rate: float
    sparsities: list[float]
    steps: list[int]
    probe: int
    tries_tasks: bool
    batch: int
    density: float


def divide_steps(steps: int, stages: int) -> list[int]:
    """Divide the steps among the stages: the last one gets a larger share, the others the same."""
    if stages == 1:
        return [steps]
    last = max(int(LAST_SHARE * steps), -(-steps // stages))
    each = max((steps - last) // (stages - 1), 1)
    return [each] * (stages - 1) + [max(steps - each * (stages - 1), 1)]
