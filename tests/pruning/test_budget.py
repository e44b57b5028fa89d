"""Budgets, the cost of a run, and the division of its steps among the stages."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.pruning.budget import BUDGETS, FLOOR_STEPS, MOST_STEPS, Costs, divide_steps, parse_budget
from tests.support.messages import naming

SECONDS = st.floats(1e-6, 10)
COSTS = st.builds(
    Costs,
    SECONDS,
    SECONDS,
    st.integers(0, 6),
    st.one_of(st.none(), st.integers(1, 30)),
)


@given(COSTS, st.integers(1, 3000))
@settings(max_examples=300, deadline=None)
def test_more_steps_take_longer(costs: Costs, steps: int) -> None:
    if costs.stages_for(steps) == costs.stages_for(steps + 1):
        assert costs.seconds(steps) < costs.seconds(steps + 1)
    assert costs.seconds(steps) < costs.seconds(2 * steps + 60)


def test_a_further_stage_shortens_the_first_one_which_tries_all_tasks() -> None:
    costs = Costs(1.0, 0.0, tasks=2)
    assert costs.stages_for(300) == costs.stages_for(299) + 1
    assert costs.seconds(300) < costs.seconds(299)


@given(COSTS, st.integers(1, 3), st.floats(0, 1e4))
@settings(max_examples=200, deadline=None)
def test_affordable_steps_fit_and_one_more_does_not(
    costs: Costs, tasks: int, seconds: float
) -> None:
    costs = replace(costs, tasks=tasks)
    steps = costs.affordable_steps(seconds)
    assert steps == 0 or costs.seconds(steps) <= seconds
    assert steps == MOST_STEPS or costs.seconds(steps + 1) > seconds


@given(COSTS, st.integers(1, 10**5))
@settings(max_examples=100, deadline=None)
def test_a_run_costs_at_least_its_steps_and_checks(costs: Costs, steps: int) -> None:
    assert costs.seconds(steps) >= steps * costs.step + costs.check
    if costs.stages is not None:
        assert costs.stages_for(steps) == costs.stages


def test_candidates_take_a_small_share_of_a_long_run() -> None:
    alone, compared = Costs(1.0, 0.0), Costs(1.0, 0.0, entrants=4)
    assert 0.1 < compared.seconds(10_000) / alone.seconds(10_000) - 1 < 0.25


@given(st.integers(1, 5000), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_the_steps_are_divided_among_all_stages(steps: int, stages: int) -> None:
    """With fewer steps than stages, each stage still has one."""
    divided = divide_steps(steps, stages)
    assert len(divided) == stages
    assert min(divided) >= 1
    assert sum(divided) == max(steps, stages)
    assert max(divided) == divided[-1]
    assert len(set(divided[:-1])) <= 1


def test_a_number_is_a_limit_on_the_time_alone() -> None:
    budget = parse_budget("budget", 7)
    assert budget.seconds == 7.0
    assert budget.useful_steps(10, 10) == MOST_STEPS


@pytest.mark.parametrize(("given", "steps"), [("1 step", 1), ("40 steps", 40)])
@pytest.mark.parametrize("samples", [2, 100_000])
def test_steps_limit_the_training_alone(given: str, steps: int, samples: int) -> None:
    budget = parse_budget("budget", given)
    assert math.isinf(budget.seconds)
    assert budget.useful_steps(samples, min(samples, 128)) == steps


def test_names_allow_more_from_fast_to_best() -> None:
    found = [parse_budget("budget", name) for name in ("fast", "balanced", "best")]
    assert found == list(BUDGETS.values())
    for samples, batch in ((1000, 125), (50_000, 128)):
        steps = [budget.useful_steps(samples, batch) for budget in found]
        assert 0 < steps[0] < steps[1] <= steps[2]
    assert found[0].seconds < found[1].seconds < found[2].seconds


def test_few_samples_limit_the_steps() -> None:
    """A pass over 16 samples is one step: many passes would only repeat the same samples."""
    budget = BUDGETS["best"]
    assert budget.useful_steps(16, 16) == budget.most_passes
    assert budget.useful_steps(1, 1) >= 1


@pytest.mark.parametrize(
    "bad", [0, -1, math.nan, math.inf, "quick", "0 steps", "-3 steps", "steps", True, None, [1]]
)
def test_values_that_are_no_budget_are_named(bad: Any) -> None:
    with pytest.raises(ChitaError, match=naming("budget", bad, "'fast'", "'N steps'")):
        parse_budget("budget", bad)


@given(COSTS, st.floats(0, 1e4))
def test_a_name_plans_some_steps_on_any_machine(costs: Costs, elapsed: float) -> None:
    """A number of seconds is a limit, and a name is not."""
    named, limit = parse_budget("budget", "fast"), parse_budget("budget", 112)
    slow = replace(costs, step=1e4)
    assert named.steps(10_000, 100, slow, elapsed) == FLOOR_STEPS
    assert named.steps(16, 16, slow, elapsed) <= named.most_passes
    assert limit.steps(10_000, 100, slow, elapsed) == 0


@given(st.integers(1, 512), st.floats(1e-4, 100))
@settings(max_examples=200, deadline=None)
def test_a_slow_step_has_fewer_samples(batch: int, step: float) -> None:
    """The least steps of a named budget fit into its time, unless a step has the least samples."""
    fast = BUDGETS["fast"]
    found = fast.batch(batch, step, least=16)
    assert min(batch, 16) <= found <= batch
    fits = fast.floor_steps * step * found / batch <= fast.seconds
    assert fits or found == min(batch, 16)
    if fast.floor_steps * step <= fast.seconds:
        assert found == batch
    assert parse_budget("budget", 10.0).batch(batch, step, least=16) == batch
