"""The plan of a run with recovery: its samples, stages and steps, and the rate as it goes on."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.pruning import budget as budget_module
from chita.pruning.budget import Budget
from chita.pruning.config import PruneConfig
from chita.pruning.recovery.recovery import Recovered, Recovery
from chita.pruning.recovery.stages import FASTER, FLOOR_STAGES, FREE, SLOWER, StageRecovery
from chita.pruning.setup import Setup
from tests.support.guarded import fit
from tests.support.messages import naming
from tests.support.part_losses import losses
from tests.support.pruning import Again, cut, points, same, snapshot, tiny


def trained() -> nn.Module:
    model = tiny()
    fit(model, points(300))
    return model


def setup_of(samples: int = 300, model: nn.Module | None = None, **options: Any) -> Setup:
    defaults: dict[str, Any] = {"sparsity": 0.8, "method": "auto", "budget": "300 steps"}
    config = PruneConfig(**{**defaults, **options})
    return Setup(model or trained(), cut(points(samples), 50), None, config)


def recovery_of(setup: Setup) -> StageRecovery:
    assert setup.recovery is not None
    return setup.recovery


def planned(setup: Setup) -> StageRecovery:
    recovery = recovery_of(setup)
    recovery.make_plan(setup.pruned_to, entrants=setup.search.entrants, began=time.perf_counter())
    return recovery


@pytest.mark.parametrize("samples", [100, 1000, 2000, 6000])
@pytest.mark.parametrize("method", ["auto", "magnitude"])
def test_most_samples_are_trained_on(samples: int, method: str) -> None:
    setup = setup_of(samples, method=method, recover=True)
    pool = recovery_of(setup)._pool
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
    assert recovery_of(setup)._pool.samples >= 0.74 * 2000


def test_a_budget_may_limit_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget_module.BUDGETS, "fast", Budget(100, samples=120))
    assert recovery_of(setup_of(1000, budget="fast"))._pool.samples <= 120 + 50
    assert recovery_of(setup_of(1000))._pool.samples > 700


@pytest.mark.parametrize("options", [{}, {"stages": 3}, {"method": "magnitude", "recover": True}])
def test_the_plan_rises_to_the_target_and_uses_all_steps(options: dict[str, Any]) -> None:
    setup = setup_of(**options)
    before = snapshot(setup.model)
    plan = planned(setup).planned
    assert same(snapshot(setup.model), before)
    assert len(plan.sparsities) == len(plan.steps) == options.get("stages", 5)
    assert all(one <= other for one, other in pairwise(plan.sparsities))
    assert plan.sparsities[-1] == 0.8
    assert sum(plan.steps) == 300
    assert 0 < plan.rate < 1


def test_the_first_sparsity_costs_almost_nothing() -> None:
    """By the true losses: the next sparsities of a fine grid cost more."""
    setup = setup_of()
    start = planned(setup).planned.sparsities[0]

    def cost(sparsity: float) -> float:
        return setup.held_out.losses(setup.pruned_to(sparsity)).mean

    limit = cost(0.0) + FREE * (cost(0.8) - cost(0.0))
    assert cost(start) <= limit
    assert cost(start + 0.1) > limit
    assert 0 <= start < 0.8


def test_a_target_that_costs_nothing_is_reached_at_once() -> None:
    model: Any = trained()
    with torch.no_grad():
        model[0].weight[:6] = 0
    plan = planned(setup_of(model=model, sparsity=0.2)).planned
    assert plan.sparsities[0] == pytest.approx(0.2, abs=0.01)


def test_the_plan_does_not_depend_on_the_clock_for_steps() -> None:
    assert planned(setup_of()).planned == planned(setup_of()).planned


def test_candidates_are_compared_where_they_matter() -> None:
    recovery = planned(setup_of())
    middle, target = recovery.contests
    assert recovery.planned.sparsities[0] < middle < target == 0.8


def test_a_run_that_is_late_is_shortened() -> None:
    recovery = planned(setup_of(budget=60))
    before = recovery.planned
    recovery.keep_pace(0, time.perf_counter())
    recovery.keep_pace(1, time.perf_counter())
    assert recovery.planned == before
    recovery.keep_pace(1, time.perf_counter() - 1000)  # no time is left
    assert recovery.planned.steps == [before.steps[0], *[1] * (len(before.steps) - 1)]
    assert recovery.planned.sparsities == before.sparsities


def test_steps_are_not_shortened_by_the_clock() -> None:
    recovery = planned(setup_of())
    before = recovery.planned
    recovery.keep_pace(0, time.perf_counter() - 1000)
    recovery.keep_pace(1, time.perf_counter() - 1000)
    assert recovery.planned == before


def test_a_floor_gets_stages_to_search_in() -> None:
    plan = planned(setup_of(min_accuracy=50.0)).planned
    assert len(plan.steps) == len(plan.sparsities) == 5 + FLOOR_STAGES
    assert plan.sparsities[-FLOOR_STAGES - 1 :] == [0.8] * (FLOOR_STAGES + 1)


def test_the_plan_goes_on_from_its_state() -> None:
    first, other = planned(setup_of()), recovery_of(setup_of())
    first.rate /= 2
    other.load_state(json.loads(json.dumps(first.state())))
    assert (other.plan, other.rate) == (first.plan, first.rate)


@pytest.mark.parametrize("budget", [1e-3, 1e-9])
def test_a_budget_too_small_for_one_step(budget: float) -> None:
    setup = setup_of(budget=budget)
    before = snapshot(setup.model)
    with pytest.raises(ChitaError, match=naming("budget", budget, "recover=False")):
        planned(setup)
    assert same(snapshot(setup.model), before)


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
        return Recovered(losses(2.0), losses(1.0), self.left.pop(0), steps)


def test_a_training_that_does_not_help_lowers_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one that does, the rate rises again, up to that of the plan."""
    recovery = planned(setup_of())
    rate = recovery.planned.rate
    outcomes = Outcomes(True, False, True, True, False, True)
    monkeypatch.setattr(Recovery, "run", lambda self, *a, **k: outcomes.run(*a, **k))
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


def test_steps_of_stages_beyond_the_plan() -> None:
    recovery = planned(setup_of())
    steps = recovery.planned.steps
    assert [recovery.steps(stage) for stage in range(1, 6)] == steps
    assert recovery.steps(99) == steps[-1]


@pytest.mark.parametrize("samples", [2, 5, 20])
def test_few_samples_suffice_for_a_method_without_gradients(samples: int) -> None:
    setup = setup_of(samples, method="magnitude", recover=True)
    assert recovery_of(setup)._pool.samples + setup.held_out.samples <= samples
    assert setup.held_out.samples >= 1
