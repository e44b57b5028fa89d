"""The plan of a run with recovery: its sparsities, stages and steps, and what makes it shorter."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import Any

import pytest
import torch

from chita.errors import ChitaError
from chita.pruning.budget import BUDGETS
from chita.pruning.recovery.planning import FIRST_COST, FLOOR_STAGES, first_estimate
from tests.support.messages import naming
from tests.support.planned import planned, setup_of, trained
from tests.support.pruning import points, same, snapshot, tiny
from tests.support.recovering import halved, recover


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

    limit = cost(0.0) + FIRST_COST * (cost(0.8) - cost(0.0))
    assert cost(start) <= limit
    assert cost(start + 0.1) > limit
    assert 0 <= start < 0.8


def test_a_target_that_costs_nothing_is_reached_at_once() -> None:
    model: Any = trained()
    with torch.no_grad():
        model[0].weight[:6] = 0
    plan = planned(setup_of(model=model, sparsity=0.2)).planned
    assert plan.sparsities[0] == 0.2


def test_the_plan_does_not_depend_on_the_clock_for_steps() -> None:
    assert planned(setup_of()).planned == planned(setup_of()).planned


def test_candidates_are_compared_where_they_matter() -> None:
    recovery = planned(setup_of())
    middle, target = recovery.contests
    assert recovery.planned.sparsities[0] < middle < target == 0.8


def test_gradients_and_solves_leave_less_time_for_training() -> None:
    recovery = planned(setup_of(budget=60))
    before, began = sum(recovery.planned.steps), time.perf_counter()
    recovery.refine_plan(0.0, 2, began)
    assert sum(recovery.planned.steps) >= before  # the candidates have been compared
    recovery.refine_plan(10.0, 2, began)
    assert len(recovery.planned.steps) <= 5
    assert sum(recovery.planned.steps) < before
    recovery.refine_plan(0.0, 2, began - 100)  # no time is left
    assert (recovery.planned.steps, recovery.planned.sparsities) == ([1], [0.8])
    steps = planned(setup_of())
    unchanged = steps.planned
    steps.refine_plan(10.0, 2, began)
    assert steps.planned == unchanged  # a budget of steps does not depend on the clock


def test_a_floor_gets_stages_to_search_in() -> None:
    plan = planned(setup_of(min_accuracy=50.0)).planned
    assert len(plan.steps) == len(plan.sparsities) == 5 + FLOOR_STAGES
    assert plan.sparsities[-FLOOR_STAGES - 1 :] == [0.8] * (FLOOR_STAGES + 1)


@pytest.mark.parametrize("budget", [1e-3, 1e-9])
def test_a_budget_too_small_for_one_step(budget: float) -> None:
    setup = setup_of(budget=budget)
    before = snapshot(setup.model)
    seconds = re.compile(r"[\d.]+(e-\d+)? s\b")
    with pytest.raises(ChitaError, match=naming("budget", budget, "recover=False", seconds)) as no:
        planned(setup)
    assert same(snapshot(setup.model), before)
    planned(setup_of(budget=budget_in(no)))


@pytest.mark.parametrize("budget", [1e-3, 1e-9])
def test_a_single_recovery_says_which_budget_would_work(budget: float) -> None:
    model, teacher, batches = halved(tiny()), tiny(), [points(200)[0]]
    before = snapshot(model)
    with pytest.raises(ChitaError, match=naming("budget", budget, "N steps")) as no:
        recover(model, batches, teacher=teacher, budget=budget)
    assert same(snapshot(model), before)
    assert recover(model, batches, teacher=teacher, budget=budget_in(no)).steps >= 1


def budget_in(no: pytest.ExceptionInfo[ChitaError]) -> float:
    """Ten times the budget that a message recommends, since other programs may be busy."""
    found = re.search(r"at least budget=([\d.]+)", str(no.value))
    assert found is not None
    return 10 * float(found[1])


def test_the_first_estimate_follows_the_cost_of_a_sample() -> None:
    """A fast machine takes at most the budget; a slow one the least steps, and what precedes."""
    fast = BUDGETS["fast"]

    def estimate(sample_seconds: float) -> float:
        return first_estimate(
            fast, sample_seconds, samples=1500, held_out=300, at_once=64, entrants=4
        )

    costs = [estimate(10.0**power) for power in range(-6, 1)]
    assert all(one < other for one, other in pairwise(costs))
    assert costs[0] < fast.seconds
    assert estimate(1.0) > 120 * 16  # the least steps, with the least samples
    assert estimate(2.0) == pytest.approx(2 * estimate(1.0))
