"""A stage does the best of its candidates, and is never worse than the mask alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita import ChitaError, Solution
from chita.pruning.auto.candidates import AXES, Blocks, Candidate, CandidateSpace
from chita.pruning.auto.search import STEPS, CandidateSearch
from chita.pruning.auto.stage_choice import MASK, StageChoice
from chita.pruning.held_out import PartLosses
from chita.pruning.result_rows import json_safe
from chita.pruning.stage_problem import Formulation
from chita.solver.options import Options
from tests.support.messages import naming, says
from tests.support.part_losses import losses

METRICS, TERMS, BLOCKS = ("plain", "fisher", "lamp"), (True, False), (None, 2000)
SPACE = CandidateSpace(AXES, (METRICS, TERMS, tuple(Blocks(size, 0) for size in BLOCKS), (1.0,)))
ALL = SPACE.all()
ONE = CandidateSpace(AXES, (("plain",), (True,), (Blocks(None, 0),), (1.0,)))
FIRST = ALL[0]
BASE = Formulation(Options())
FORMULATIONS = [candidate.apply(BASE) for candidate in ALL]
MASKED = torch.tensor([2])  # the support of the mask

Loss = Callable[[Formulation, float, float], float]  # ..., lambda, step -> the held-out loss


class World:
    """Solutions that say of which form and lambda they are, and a loss that depends on these.

    The masked weights are zero, so that a share of the way is that share of the solution; all masks
    have the same loss.
    """

    def __init__(self, loss: Loss, mask: float = math.inf) -> None:
        self._loss, self._mask = loss, mask
        self.solved: list[Candidate] = []
        self.screened: set[Candidate] = set()

    def solve(self, formulation: Formulation, ridge: float) -> Solution:
        number = FORMULATIONS.index(formulation)
        self.solved.append(ALL[number])
        w = torch.tensor([1.0, number, math.log10(ridge)], dtype=torch.float64)
        return Solution(w, torch.arange(3), 0.0, 0, True, [])

    def update(self, formulation: Formulation, ridge: float, solution: Solution) -> Solution:
        raise AssertionError("every lambda has its own support")

    def loss(self, w: Tensor) -> float:
        step = float(w[0])
        if step == 0:
            return self._mask
        number, exponent = (w[1:] / step).tolist()
        return self._loss(FORMULATIONS[round(number)], 10**exponent, step)

    def losses_of(self, w: Tensor) -> PartLosses:
        return losses(self.loss(w))

    def screening_losses(self, w: Tensor) -> PartLosses:
        self.screened.add(ALL[round(float(w[1]))])
        return self.losses_of(w)

    def still(self, solution: Solution) -> Tensor:
        return torch.zeros(3, dtype=torch.float64)

    def mask(self, formulation: Formulation) -> tuple[Tensor, Tensor]:
        return torch.zeros(3, dtype=torch.float64), MASKED

    def stage(self, search: CandidateSearch) -> StageChoice:
        return search.choose(self, self.losses_of, self.screening_losses)


def candidate(metric: str, block_size: int | None, first_order: bool) -> Candidate:
    return Candidate(AXES, (metric, first_order, Blocks(block_size, 0), 1.0))


def valley(form: Formulation, ridge: float, step: float) -> float:
    """The best is lambda = 0.1, the whole way, blocks without the first-order term, Fisher."""
    off = (form.metric != "fisher") + (form.block_size is None) + form.first_order
    return 1 + 0.1 * off + 0.01 * abs(math.log10(ridge) + 1) + (1 - step)


def arbitrary(seed: int) -> Loss:
    """A loss that is any function of its arguments, sometimes no number."""
    table = torch.rand(len(ALL), 17, 2, generator=torch.Generator().manual_seed(seed)).tolist()

    def loss(form: Formulation, ridge: float, step: float) -> float:
        value: float = table[FORMULATIONS.index(form)][round(2 * math.log10(ridge)) + 10][step == 1]
        return math.nan if value < 0.05 else value

    return loss


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1), st.integers(1, 6))
def test_the_choice_is_the_best_that_was_tried(seed: int, mask: float, stages: int) -> None:
    """Whatever the losses are: the mask alone is among what was tried, and so is its half way."""
    search = CandidateSearch(SPACE, BASE)
    for stage in range(stages):
        world = World(arbitrary(seed + stage), mask)
        chosen = world.stage(search)
        losses = [trial.loss for trial in chosen.trials if not math.isnan(trial.loss)]
        assert chosen.choice.held_out_loss == min(losses) <= mask
        assert chosen.choice.held_out_loss == world.loss(chosen.choice.solution.w)
        assert [trial.step for trial in chosen.trials[-2:]] == [*STEPS, MASK]
        if chosen.step == MASK:
            assert not bool(chosen.choice.solution.w.any())
            assert chosen.choice.solution.support is MASKED
        else:
            w = world.solve(chosen.candidate.apply(BASE), chosen.choice.ridge).w
            torch.testing.assert_close(chosen.choice.solution.w, chosen.step * w)


@pytest.mark.parametrize(("mask", "step"), [(0.9, 0.0), (1.1, 1.0)])
def test_the_mask_alone_wins_where_it_is_better(mask: float, step: float) -> None:
    chosen = World(lambda form, ridge, step: 1.0 + (1 - step), mask).stage(
        CandidateSearch(ONE, BASE)
    )
    assert chosen.step == step
    assert chosen.choice.held_out_loss == min(mask, 1.0)
    assert says(chosen.why, "mask", mask)


def test_half_the_way_where_the_whole_overshoots() -> None:
    chosen = World(lambda form, ridge, step: abs(step - 0.5), 1.0).stage(CandidateSearch(ONE, BASE))
    assert chosen.step == 0.5
    assert says(chosen.why, "50%")


def test_the_first_stage_looks_at_every_kind_of_form() -> None:
    world, search = World(valley), CandidateSearch(SPACE, BASE)
    chosen = world.stage(search)
    assert chosen.candidate == candidate("fisher", 2000, False)
    assert chosen.choice.ridge == pytest.approx(0.1)
    assert {form.to_dict()["metric"] for form in world.screened} == set(METRICS)
    assert {form.to_dict()["block_size"] for form in world.screened} == set(BLOCKS)
    assert {form.to_dict()["first_order"] for form in world.screened} == set(TERMS)
    assert says(
        chosen.why,
        "fisher",
        2000,
        "first-order",
        re.compile(r"lambda\W+0\.1\b"),
        len(chosen.trials),
    )


def test_the_first_stage_goes_round_until_no_form_beside_it_is_better() -> None:
    """Blocks that are best with the first-order term are not the best without it."""

    def tangled(form: Formulation, ridge: float, step: float) -> float:
        right = (form.block_size is None) == form.first_order
        return 2 - 0.1 * right - 0.3 * (not form.first_order) - 0.5 * (form.metric == "lamp")

    world = World(tangled)
    chosen = world.stage(CandidateSearch(SPACE, BASE))
    assert chosen.candidate == candidate("lamp", 2000, False)
    assert world.screened >= set(SPACE.neighbours(chosen.candidate))


@pytest.mark.parametrize(("gain", "switches"), [(0.01, False), (0.3, True)])
def test_a_form_changes_only_beyond_two_standard_errors(gain: float, switches: bool) -> None:
    """Forms in blocks are better on average, but not on every sample: the difference has a standard
    error of 0.1."""
    noise = torch.tensor([1.0, -1.0] * 50, dtype=torch.float64)

    class Spread(World):
        def losses_of(self, w: Tensor) -> PartLosses:
            form = FORMULATIONS[round(float(w[1] / w[0]))] if w[0] else FORMULATIONS[0]
            each = 2 + noise - gain if form.block_size else 2 - 0 * noise
            return losses(*each.tolist())

    search = CandidateSearch(SPACE, BASE, ridge=0.1, steps=())
    world = Spread(lambda form, ridge, step: 0.0)
    chosen = [world.stage(search).candidate for _ in range(8)]
    assert {form.to_dict()["block_size"] is not None for form in chosen} == {switches}


def test_later_stages_try_one_other_form_each_in_turn() -> None:
    world, search = World(valley), CandidateSearch(SPACE, BASE)
    best, rivals = world.stage(search).candidate, []
    neighbours = SPACE.neighbours(best)
    assert len(neighbours) == 2 + 1 + 1
    for _ in range(2 * len(neighbours)):
        chosen = world.stage(search)
        assert chosen.candidate == best
        (rival,) = {trial.candidate for trial in chosen.trials} - {best}
        rivals.append(rival)
    assert set(rivals) == set(neighbours)
    assert rivals[: len(neighbours)] == rivals[len(neighbours) :]


def test_a_form_that_became_better_is_taken_up() -> None:
    search = CandidateSearch(SPACE, BASE)
    assert World(valley).stage(search).candidate.to_dict()["metric"] == "fisher"

    def other(form: Formulation, ridge: float, step: float) -> float:
        return valley(form, ridge, step) - 0.3 * (form.metric == "lamp")

    forms = [World(other).stage(search).candidate for _ in range(5)]
    assert forms[-1] == candidate("lamp", 2000, False)
    assert "lamp" in {form.to_dict()["metric"] for form in forms[:4]}  # once round the rivals


def test_a_form_is_not_judged_by_a_lambda_of_the_past() -> None:
    """All want a lambda ten times larger now, with which one of them is the best."""
    search = CandidateSearch(SPACE, BASE)
    World(valley).stage(search)

    def drifted(form: Formulation, ridge: float, step: float) -> float:
        off = abs(math.log10(ridge))
        return valley(form, 0.1, step) - 0.3 * (form.metric == "lamp") + 0.3 * off

    forms = [World(drifted).stage(search).candidate for _ in range(5)]
    assert "lamp" in {form.to_dict()["metric"] for form in forms[:4]}


def test_a_later_stage_costs_few_candidates() -> None:
    world, search = World(valley), CandidateSearch(SPACE, BASE)
    for _ in range(6):
        world.stage(search)
    world.solved.clear()
    assert len(world.stage(search).trials) == 3 + 3 + len(STEPS) + 1
    assert len(world.solved) == 6


def test_a_given_ridge_is_the_only_one() -> None:
    world, search = World(valley), CandidateSearch(SPACE, BASE, ridge=0.5)
    for _ in range(3):
        assert {trial.ridge for trial in world.stage(search).trials} == {0.5}


def test_without_steps_the_way_is_whole() -> None:
    chosen = World(lambda form, ridge, step: 1.0, mask=0.0).stage(
        CandidateSearch(ONE, BASE, steps=())
    )
    assert chosen.step == 1.0
    assert "mask" not in chosen.why


def test_with_nothing_held_out_there_is_no_choice() -> None:
    world = World(valley)
    chosen = CandidateSearch(SPACE, BASE, ridge=0.3).only(world)
    assert (chosen.candidate, chosen.choice.ridge, chosen.choice.held_out_loss) == (
        FIRST,
        0.3,
        None,
    )
    assert (chosen.why, chosen.trials) == ("", [])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_losses_that_are_no_numbers_lose(bad: float) -> None:
    def plain_is_bad(form: Formulation, ridge: float, step: float) -> float:
        return bad if form.metric == "plain" else valley(form, ridge, step)

    search = CandidateSearch(SPACE, BASE)
    for _ in range(5):
        assert World(plain_is_bad, mask=5.0).stage(search).candidate.to_dict()["metric"] == "fisher"
    chosen = World(lambda form, ridge, step: bad, mask=5.0).stage(search)
    assert (chosen.step, chosen.choice.held_out_loss) == (0.0, 5.0)
    assert {json_safe(trial.to_dict())["loss"] for trial in chosen.trials} == {None, 5.0}
    for ridge in (None, 0.1):
        with pytest.raises(ChitaError, match=naming("held-out loss", bad, "ridge")):
            World(lambda form, ridge, step: bad, mask=bad).stage(
                CandidateSearch(SPACE, BASE, ridge=ridge)
            )


@given(st.integers(0, 10**6), st.integers(0, 4))
@settings(max_examples=25, deadline=None)
def test_a_search_that_goes_on_from_its_state_chooses_the_same(seed: int, before: int) -> None:
    """The state goes through JSON, as it does in a stage file."""
    search, other = CandidateSearch(SPACE, BASE), CandidateSearch(SPACE, BASE)
    for stage in range(before):
        World(arbitrary(seed + stage), 0.5).stage(search)
    other.load_state(json.loads(json.dumps(search.state())))
    assert other.state() == search.state()
    for stage in range(before, before + 3):
        one, same = (World(arbitrary(seed + stage), 0.5).stage(each) for each in (search, other))
        assert told(one) == told(same)


def told(chosen: StageChoice) -> Any:
    """What a stage's row has of it, ready for JSON; NaN is not equal to itself."""
    trials = [trial.to_dict() for trial in chosen.trials]
    return json.dumps([str(chosen.candidate), chosen.choice.ridge, chosen.step, chosen.why, trials])
