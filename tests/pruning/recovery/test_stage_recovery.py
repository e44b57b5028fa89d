"""GuardedTraining in a run: its samples, the rate as it goes on, and what it trains on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.pruning import budget as budget_module
from chita.pruning.budget import Budget
from chita.pruning.config import PruneConfig
from chita.pruning.recovery.guarded_training import GuardedTraining, Recovered
from chita.pruning.recovery.objective import DISTILL, LOSS
from chita.pruning.recovery.stage_recovery import FASTER, SLOWER, StageRecovery
from chita.pruning.setup import Setup
from tests.support.messages import naming
from tests.support.part_losses import losses
from tests.support.planned import planned, recovery_of, setup_of, trained
from tests.support.pruning import Again, cut, points, tiny


@pytest.mark.parametrize("samples", [100, 1000, 2000, 6000])
@pytest.mark.parametrize("method", ["auto", "magnitude"])
def test_most_samples_are_trained_on(samples: int, method: str) -> None:
    setup = setup_of(samples, method=method, recover=True)
    pool = recovery_of(setup)._planner._pool
    assert pool.samples >= 0.74 * samples
    held = setup.held_out.samples + setup.measured.samples
    assert pool.samples + held == samples
    assert setup.held_out.samples >= min(0.14 * samples, 800)


def test_augmented_samples_are_read_once_and_trained_on() -> None:
    """Every pass has other samples: those of the first one are stored."""

    class Noisy(Again):
        passes = 0

        def __iter__(self) -> Iterator[Any]:
            self.passes += 1
            return ((x + 1e-3 * self.passes, y) for x, y in self.batches)

    config = PruneConfig(sparsity=0.8, method="auto", budget="300 steps")
    setup = Setup(trained(), Noisy(cut(points(2000), 50)), None, config)
    assert recovery_of(setup)._planner._pool.samples >= 0.74 * 2000


def test_a_budget_may_limit_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget_module.BUDGETS, "fast", Budget(100, samples=120))
    assert recovery_of(setup_of(1000, budget="fast"))._planner._pool.samples <= 120 + 50
    assert recovery_of(setup_of(1000))._planner._pool.samples > 700


def test_the_plan_goes_on_from_its_state() -> None:
    first, other = planned(setup_of()), recovery_of(setup_of())
    first.rate /= 2
    other.load_state(json.loads(json.dumps(first.state())))
    assert (other.plan, other.rate) == (first.plan, first.rate)


def test_steps_of_a_slow_network_have_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine takes 120 steps in a microsecond: the batch is the least one, also later on."""
    slow = Budget(1e-6, least_steps=600, floor_steps=120)
    monkeypatch.setitem(budget_module.BUDGETS, "fast", slow)
    first, other = planned(setup_of(2000, budget="fast")), recovery_of(setup_of(2000))
    assert other._planner._pool.batch > 16
    other.load_state(json.loads(json.dumps(first.state())))
    for recovery in (first, other):
        assert recovery.planned.batch == recovery._planner._pool.batch == 16
        drawn = recovery._planner._pool.draw(torch.Generator().manual_seed(0))
        assert next(drawn).size == 16


def test_a_network_that_cannot_be_trained() -> None:
    """Its loss is finite only without gradients."""

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trained()

        def forward(self, x: torch.Tensor) -> Any:
            out = self.inner(x)
            return out * math.nan if any(p.grad_fn for p in (out,)) else out

    setup = setup_of(model=Broken(), method="magnitude", recover=True)
    with pytest.raises(ChitaError, match=naming("finite", "recover=False")):
        planned(setup)


class Outcomes:
    """Trainings that end as given, and the rates that they were run with."""

    def __init__(self, *kept: bool) -> None:
        self.left, self.rates, self.steps = list(kept), list[float](), list[int]()

    def run(self, *_: Any, rate: float, steps: int, **__: Any) -> Recovered:
        self.rates.append(rate)
        self.steps.append(steps)
        return Recovered(losses(2.0), losses(1.0), self.left.pop(0), steps, DISTILL)


def test_a_training_that_does_not_help_lowers_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one that does, the rate rises again, up to that of the plan."""
    recovery = planned(setup_of(loss="distill"))  # a single task
    rate = recovery.planned.rate
    outcomes = Outcomes(True, False, True, True, False, True)
    monkeypatch.setattr(GuardedTraining, "run", lambda self, *a, **k: outcomes.run(*a, **k))
    found = [recovery.run(torch.ones(72, dtype=torch.bool), stage) for stage in range(1, 6)]
    slow = rate / SLOWER
    last = min(slow * FASTER**2, rate)
    assert outcomes.rates == pytest.approx([rate, rate, slow, slow * FASTER, last, last / SLOWER])
    assert [each.kept for each in found] == [True, False, True, True, True]  # the last one again
    assert [each.steps for each in found[:4]] == outcomes.steps[:4]
    assert found[4].steps == sum(outcomes.steps[4:])
    assert outcomes.steps[:5] == recovery.planned.steps
    assert 0 < outcomes.steps[5] < 0.5 * outcomes.steps[4]
    assert recovery.rate <= rate


@pytest.mark.parametrize(
    ("kept", "steps", "factor"),
    [
        (72, 10_000, 1),  # more weights than in the range test
        (12, 10_000, 3**0.5),  # a third as many
        (2, 10_000, 2),  # far fewer
        (2, 120, 2**0.5),  # twice as long as the shortest stage
        (2, 60, 1),
        (2, 5, 1),
    ],
)
def test_fewer_weights_take_larger_steps_in_long_trainings(
    monkeypatch: pytest.MonkeyPatch, kept: int, steps: int, factor: float
) -> None:
    recovery = planned(setup_of(loss="distill"))
    plan = recovery.planned
    recovery.plan = replace(plan, density=0.5, steps=[steps] * len(plan.steps), probe=steps)
    rates: list[float] = []

    def run(self: GuardedTraining, *_: Any, rate: float, **__: Any) -> Recovered:
        rates.append(rate)
        return Recovered(losses(2.0), losses(1.0), True, steps, DISTILL)

    def worth(self: GuardedTraining, w: torch.Tensor, *, rate: float, **__: Any) -> Any:
        rates.append(rate)
        return losses(1.0)

    monkeypatch.setattr(GuardedTraining, "run", run)
    monkeypatch.setattr(GuardedTraining, "worth", worth)
    mask = torch.arange(72) < kept
    recovery.run(mask, 1)
    recovery.worth()(mask.float())
    assert rates == pytest.approx([factor * plan.rate] * 2)


def test_the_plan_has_the_share_of_weights_that_the_range_test_kept() -> None:
    recovery = planned(setup_of())
    assert recovery.planned.density == pytest.approx(1 - recovery._planner.tested)
    assert 0 < recovery.planned.density <= 1


def test_steps_of_stages_beyond_the_plan() -> None:
    recovery = planned(setup_of())
    steps = recovery.planned.steps
    assert [recovery.steps(stage) for stage in range(1, 6)] == steps
    assert recovery.steps(99) == steps[-1]


@pytest.mark.parametrize("samples", [2, 5, 20])
def test_few_samples_suffice_for_a_method_without_gradients(samples: int) -> None:
    setup = setup_of(samples, method="magnitude", recover=True)
    assert recovery_of(setup)._planner._pool.samples + setup.held_out.samples <= samples
    assert setup.held_out.samples >= 1


def stages_of(recovery: StageRecovery, weights: int = 72) -> str:
    """Run all stages with all weights kept, and return the task that was chosen."""
    for stage in range(1, len(recovery.planned.steps) + 1):
        recovery.run(torch.ones(weights, dtype=torch.bool), stage)
    task: str = recovery.state()["task"]
    return task


def test_labels_replace_a_dense_network_that_is_worse_than_they_are() -> None:
    """The dense network is not trained, so that its answers teach nothing."""
    setup = setup_of(2000, model=tiny(), budget="600 steps", stages=4)
    recovery = planned(setup)
    dense = setup.held_out.losses_now().mean
    assert stages_of(recovery) == LOSS
    assert setup.held_out.losses_now().mean < 0.7 * dense


def test_the_first_stage_tries_both_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    recovery = planned(setup_of(budget="600 steps", stages=8))
    trained_on: list[str] = []
    by_name = {id(each): name for name, each in recovery._by_task.items()}

    def run(self: GuardedTraining, *_: Any, steps: int, **__: Any) -> Recovered:
        trained_on.append(by_name[id(self)])
        task = by_name[id(self)]
        after = losses(1.0, 1.1) if task == DISTILL else losses(2.0, 2.1)
        return Recovered(losses(3.0, 3.0), after, True, steps, task)

    monkeypatch.setattr(GuardedTraining, "run", run)
    found = [recovery.run(torch.ones(72, dtype=torch.bool), stage) for stage in range(1, 9)]
    assert trained_on == [DISTILL, LOSS, *7 * [DISTILL]]
    assert found[0].after.mean < 1.2 and found[0].steps == 2 * recovery.planned.steps[0]
    assert recovery.state()["task"] == DISTILL
