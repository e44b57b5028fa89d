"""The search for lambda by the held-out loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from chita import Solution
from chita.pruning.auto.ridge import DOWN, UP, Choice, RidgeSearch
from chita.pruning.held_out import PartLosses
from tests.support.part_losses import losses

GRID = [10 ** (i / 2) for i in range(-10, 7)]


class Landscape:
    """A held-out loss as a function of lambda; notes what was tried."""

    def __init__(self, loss: Callable[[float], float]) -> None:
        self.loss = loss
        self.tried: list[float] = []

    def solve(self, ridge: float) -> Solution:
        self.tried.append(ridge)
        return Solution(torch.tensor([ridge], dtype=torch.float64), [], 0.0, 0, True, [])

    def losses_of(self, w: Tensor) -> PartLosses:
        return losses(self.loss(w.item()))

    def choose(self, search: RidgeSearch) -> Choice:
        return search.choose(self.solve, self.losses_of)


def valley(bottom: float) -> Landscape:
    return Landscape(lambda ridge: abs(math.log10(ridge / bottom)))


@pytest.mark.parametrize("bottom", GRID)
def test_the_first_stage_finds_the_best_of_the_grid(bottom: float) -> None:
    landscape = valley(bottom)
    choice = landscape.choose(RidgeSearch())
    assert choice.ridge == pytest.approx(bottom)
    assert choice.held_out_loss == pytest.approx(0, abs=1e-9)
    assert choice.solution.w.item() == choice.ridge
    assert len(landscape.tried) == len(set(landscape.tried)) <= 12


def test_the_first_stage_looks_no_further_than_it_pays() -> None:
    landscape = valley(1e-3)
    landscape.choose(RidgeSearch())
    assert len(landscape.tried) == 6  # 1e-2 and the decades beside it, 1e-4, two half-decades


@pytest.mark.parametrize("bottom", GRID)
def test_a_look_is_right_to_a_decade_and_the_choice_goes_on_from_there(bottom: float) -> None:
    landscape, search = valley(bottom), RidgeSearch()
    seen = search.look(landscape.solve, landscape.losses_of)
    assert abs(math.log10(seen.ridge / bottom)) <= 0.5 + 1e-9
    looked = len(landscape.tried)
    assert landscape.choose(search).ridge == pytest.approx(bottom)
    assert len(landscape.tried) <= looked + 4


def test_later_stages_look_beside_the_last_choice() -> None:
    search = RidgeSearch()
    valley(0.1).choose(search)
    landscape = valley(0.1)
    assert landscape.choose(search).ridge == pytest.approx(0.1)
    assert sorted(landscape.tried) == pytest.approx([0.1 / 10**0.5, 0.1, 0.1 * 10**0.5])


@pytest.mark.parametrize(("side", "found"), [(DOWN, 0.1), (UP, 10.0)])
def test_following_looks_at_one_side_as_far_as_it_pays(side: int, found: float) -> None:
    search, landscape = RidgeSearch(), valley(10.0)
    valley(0.1).choose(search)
    choice = search.follow(landscape.solve, landscape.losses_of, side)
    assert choice.ridge == pytest.approx(found)
    assert len(landscape.tried) == (2 if side == DOWN else 6)


def test_following_starts_at_the_best_decade() -> None:
    landscape = valley(1e-3)
    choice = RidgeSearch().follow(landscape.solve, landscape.losses_of, UP)
    assert choice.ridge == pytest.approx(1e-3)


@pytest.mark.parametrize("bottom", [1e-5, 1e-3, 1e3])
def test_later_stages_go_as_far_as_it_pays(bottom: float) -> None:
    search = RidgeSearch()
    valley(0.1).choose(search)
    assert valley(bottom).choose(search).ridge == pytest.approx(bottom)


@pytest.mark.parametrize("slope", [1.0, -1.0])
def test_the_grid_is_never_left(slope: float) -> None:
    search = RidgeSearch()
    for _ in range(3):
        landscape = Landscape(lambda ridge: slope * math.log10(ridge))
        choice = landscape.choose(search)
        assert choice.ridge == pytest.approx(1e-5 if slope > 0 else 1e3)
        assert min(landscape.tried) > 0.99e-5 and max(landscape.tried) < 1.01e3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_losses_that_are_not_finite_lose(bad: float) -> None:
    search = RidgeSearch()
    landscape = Landscape(lambda ridge: bad if ridge < 0.5 else ridge)
    assert landscape.choose(search).ridge == pytest.approx(1.0)
    later = Landscape(lambda ridge: bad if ridge < 50 else ridge)
    assert later.choose(search).ridge == pytest.approx(100.0)  # far from the last choice
    none = Landscape(lambda ridge: bad)
    assert math.isinf(none.choose(search).rank)
    assert set(GRID[::2]) <= set(none.tried)  # every decade had its chance
    assert later.choose(search).ridge == pytest.approx(100.0)  # and the choice before is not lost
