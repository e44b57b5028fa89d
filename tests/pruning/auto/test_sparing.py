"""The search of auto without recovery compares the same candidates with few solves."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita import Solution
from chita.pruning.auto.candidates import AXES, Blocks, Candidate, CandidateSpace
from chita.pruning.auto.sparing import RIVAL_EVERY, ROUNDS, SparingSearch
from chita.pruning.stage_problem import Formulation
from tests.pruning.auto.test_search import (
    BASE,
    SPACE,
    World,
    arbitrary,
    candidate,
    told,
    valley,
)


class Sharing(World):
    """A world that counts the updates on the support of another lambda."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.updates = 0

    def update(self, formulation: Formulation, ridge: float, solution: Solution) -> Solution:
        found = self.solve(formulation, ridge)
        self.solved.pop()
        self.updates += 1
        return found


def test_a_stage_solves_its_candidate_once_and_later_a_rival_at_every_second_stage() -> None:
    search = SparingSearch(SPACE, BASE)
    best = Sharing(valley).stage(search).candidate
    assert best == candidate("fisher", 2000, False)
    rivals, often = [], ROUNDS * len(SPACE.neighbours(best))
    for stage in range(1, often + RIVAL_EVERY * len(SPACE.neighbours(best)) + 1):
        world = Sharing(valley)
        world.stage(search)
        first, *others = world.solved
        assert first == best
        assert len(others) == (stage <= often or (stage - often) % RIVAL_EVERY == 0)
        assert world.updates == 1 + 2 * len(others)
        rivals += others
    assert all(rivals.count(each) >= ROUNDS for each in SPACE.neighbours(best))


def test_lambda_is_followed_both_ways() -> None:
    search = SparingSearch(SPACE, BASE)
    Sharing(valley).stage(search)
    for bottom in (10.0, 1e-3):

        def drifted(form: Formulation, ridge: float, step: float, bottom: float = bottom) -> float:
            return valley(form, 0.1 * ridge / bottom, step)

        found = [Sharing(drifted).stage(search).choice.ridge for _ in range(4)]
        assert found[-1] == pytest.approx(bottom)


def test_a_form_that_became_better_is_taken_up() -> None:
    search = SparingSearch(SPACE, BASE)
    Sharing(valley).stage(search)

    def other(form: Formulation, ridge: float, step: float) -> float:
        return valley(form, ridge, step) - 0.3 * (form.metric == "lamp")

    stages = RIVAL_EVERY * (len(SPACE.neighbours(SPACE.first)) + 1)
    forms = [Sharing(other).stage(search).candidate for _ in range(stages)]
    assert forms[-1] == candidate("lamp", 2000, False)


WHOLE, APART, COUPLED = Blocks(None, 0), Blocks(2000, 0), Blocks(2000, 1)


class Blocked(Sharing):
    """A world whose loss depends on the blocks alone."""

    def __init__(self, order: dict[Blocks, float]) -> None:
        super().__init__(lambda form, ridge, step: math.nan)
        self.order, self.blocks = order, list[Blocks]()

    def solve(self, formulation: Formulation, ridge: float) -> Solution:
        blocks = Blocks(formulation.block_size, formulation.options.block_sweeps)
        self.blocks.append(blocks)
        self.solved.append(Candidate(AXES, ("plain", True, blocks)))
        w = torch.tensor([1.0, 0.0, self.order[blocks]], dtype=torch.float64)
        return Solution(w, torch.arange(3), 0.0, 0, True, [])

    def loss(self, w: torch.Tensor) -> float:
        return float(w[2]) if float(w[0]) == 1 else math.inf


@pytest.mark.parametrize(
    ("order", "first", "later"),
    [
        ((1.0, 2.0, 0.0), {WHOLE, APART}, {WHOLE, APART}),
        ((2.0, 1.0, 3.0), {WHOLE, APART, COUPLED}, {WHOLE, APART}),
        ((3.0, 2.0, 1.0), {WHOLE, APART, COUPLED}, {WHOLE, APART, COUPLED}),
    ],
)
def test_coupled_blocks_are_tried_only_where_blocks_win(
    order: tuple[float, float, float], first: set[Blocks], later: set[Blocks]
) -> None:
    space = CandidateSpace(AXES, (("plain",), (True,), (WHOLE, APART, COUPLED), (1.0,)))
    losses = dict(zip((WHOLE, APART, COUPLED), order, strict=True))
    search, world = SparingSearch(space, BASE), Blocked(losses)
    world.stage(search)
    assert set(world.blocks) == first
    world.blocks.clear()
    for _ in range(8):
        world.stage(search)
    assert set(world.blocks) == later


@given(st.integers(0, 10**6), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_a_search_that_goes_on_from_its_state_chooses_the_same(seed: int, before: int) -> None:
    search, other = SparingSearch(SPACE, BASE), SparingSearch(SPACE, BASE)
    for stage in range(before):
        Sharing(arbitrary(seed + stage), 0.5).stage(search)
    other.load_state(json.loads(json.dumps(search.state())))
    for stage in range(before, before + 4):
        one, same = (Sharing(arbitrary(seed + stage), 0.5).stage(each) for each in (search, other))
        assert told(one) == told(same)
