"""The search for t and lambda by sweeps: few of them, and the best of all is the choice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita import ChitaError, Solution
from chita.pruning.auto.candidates import SHARES, CandidateSpace
from chita.pruning.auto.share_search import ShareSearch
from chita.pruning.auto.stage_choice import StageChoice
from chita.pruning.config import PruneConfig
from chita.pruning.held_out import PartLosses
from chita.pruning.stage_problem import Formulation
from chita.solver.options import Options
from tests.support.messages import naming
from tests.support.part_losses import losses

BASE = Formulation(Options())
SPACE = CandidateSpace.of(PruneConfig(0.5, method="chita-both"), 10, 100)
Loss = Callable[[float, float], float]  # t, lambda -> the held-out loss


class World:
    """Solutions that carry their t and lambda, and a loss that depends on these."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self.solved: list[tuple[float, float]] = []

    def solve(self, formulation: Formulation, ridge: float) -> Solution:
        self.solved.append((formulation.layer_share, round(math.log10(ridge), 6)))
        w = torch.tensor([formulation.layer_share, ridge], dtype=torch.float64)
        return Solution(w, torch.arange(2), 0.0, 0, True, [])

    def update(self, formulation: Formulation, ridge: float, solution: Solution) -> Solution:
        raise AssertionError("every lambda is a sweep")

    def losses_of(self, w: Tensor) -> PartLosses:
        return losses(self._loss(float(w[0]), float(w[1])))

    def still(self, solution: Solution) -> Tensor:
        raise AssertionError("no step is tried")

    def mask(self, formulation: Formulation) -> tuple[Tensor, Tensor]:
        raise AssertionError("no mask is tried")

    def stage(self, search: ShareSearch) -> StageChoice:
        return search.choose(self, self.losses_of, self.losses_of)


def search(space: CandidateSpace = SPACE, ridge: float | None = None) -> ShareSearch:
    return ShareSearch(space, BASE, ridge=ridge, steps=())


def valley(t: float, ridge: float) -> float:
    """The best is t = 0.25 and lambda = 0.1."""
    return 1 + abs(t - 0.25) + 0.1 * abs(math.log10(ridge) + 1)


def test_every_share_and_then_the_decades_beside_it() -> None:
    world, own = World(valley), search()
    chosen = world.stage(own)
    shares = [(t, -2.0) for t in SHARES]
    assert world.solved == [*shares, *((0.25, e) for e in (-3.0, -1.0, 0.0))]
    assert chosen.candidate.apply(BASE).layer_share == 0.25
    assert chosen.choice.ridge == pytest.approx(0.1)
    assert len(chosen.trials) == 8 and "t = 0.25" in chosen.why
    later = World(valley)
    assert later.stage(own).choice.ridge == pytest.approx(0.1)
    assert later.solved == [(0.25, -1.0), (0.25, -2.0), (0.25, 0.0)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_the_choice_is_the_best_that_was_tried(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.rand(5, 17, generator=generator).tolist()

    def loss(t: float, ridge: float) -> float:
        value: float = table[SHARES.index(t)][round(2 * math.log10(ridge)) + 10]
        return math.nan if value < 0.1 else value

    world = World(loss)
    try:
        chosen = world.stage(search())
    except ChitaError:
        assert all(math.isnan(loss(t, 10**e)) for t, e in world.solved)
        return
    finite = [trial.loss for trial in chosen.trials if not math.isnan(trial.loss)]
    assert chosen.choice.held_out_loss == min(finite)
    for end in (0.0, 1.0):
        assert not loss(end, 0.01) < min(finite)


def test_a_given_lambda_or_share_is_not_searched() -> None:
    world = World(valley)
    world.stage(search(ridge=0.3))
    assert [t for t, _ in world.solved] == list(SHARES)
    space = CandidateSpace.of(PruneConfig(0.5, method="chita-both", layer_share=0.4), 10, 100)
    world = World(valley)
    assert world.stage(search(space)).choice.ridge == pytest.approx(0.1)
    assert {t for t, _ in world.solved} == {0.4}


def test_without_a_ridge_gradients_alone_are_not_tried() -> None:
    space = CandidateSpace.of(PruneConfig(0.5, method="chita-both", ridge=0), 10, 100)
    assert 0.0 not in space.values[-1] and 1.0 in space.values[-1]


def test_no_finite_loss_is_an_error() -> None:
    with pytest.raises(ChitaError, match=naming("ridge")):
        World(lambda t, ridge: math.nan).stage(search())


def test_a_resumed_search_continues() -> None:
    first, other = search(), search()
    World(valley).stage(first)
    other.load_state(json.loads(json.dumps(first.state())))
    one, two = World(valley), World(valley)
    assert one.stage(first).choice.ridge == two.stage(other).choice.ridge
    assert one.solved == two.solved
