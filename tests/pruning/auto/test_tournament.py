"""The tournament: comparisons, rivals, exclusions, and what is stored between stages."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita import ChitaError, Solution
from chita.pruning.auto.candidates import AXES, Blocks, CandidateSpace
from chita.pruning.auto.stage_choice import MASK, ContestLosses, StageChoice
from chita.pruning.auto.tournament import MOST_DEFEATS, SOLVED, Tournament
from chita.pruning.held_out import PartLosses
from chita.pruning.stage_problem import Formulation
from chita.solver.options import Options
from tests.support.messages import naming
from tests.support.part_losses import losses

METRICS = ("plain", "fisher", "lamp")
SPACE = CandidateSpace(AXES, (METRICS, (True, False), (Blocks(None, 0), Blocks(2000, 0)), (1.0,)))
BLOCKS = CandidateSpace(AXES, (METRICS, (True,), (Blocks(2000, 0), Blocks(2000, 1)), (1.0,)))
BASE = Formulation(Options())
SOLVE = "solve"
NAMES = (*METRICS, SOLVE)  # the entrants in their order


class World:
    """Weights whose first entry is the number of the entrant, and losses by entrant.

    Args:
        empties: the entrant whose support empties a layer.
        worth: the loss of each entrant after training, for several parts of the samples.
    """

    def __init__(self, empties: str = "", **worth: Any) -> None:
        self.empties = empties
        self.worth = {
            name: each if isinstance(each, tuple) else (each,) for name, each in worth.items()
        }
        self.later: dict[str, Any] = {}  # the losses after as many steps as a stage has
        self.tried: list[str] = []
        self.tried_longer: list[str] = []
        self.ridges: list[float] = []
        self.solved: list[str] = []  # the metrics of the solves, which are all worth the same

    def mask(self, formulation: Formulation) -> tuple[Tensor, Tensor]:
        number = NAMES.index(formulation.metric)
        return torch.tensor([float(number), 0.0]), torch.tensor([number])

    def solve(self, formulation: Formulation, ridge: float) -> Solution:
        self.solved.append(formulation.metric)
        self.ridges.append(ridge)
        w = torch.tensor([float(NAMES.index(SOLVE)), math.log10(ridge)])
        return Solution(w, torch.tensor([NAMES.index(SOLVE)]), 0.0, 3, True, [])

    def update(self, formulation: Formulation, ridge: float, solution: Solution) -> Solution:
        raise AssertionError("every lambda has its own support")

    def still(self, solution: Solution) -> Tensor:
        raise AssertionError("a tournament has no half steps")

    def empties_layer(self, support: Tensor) -> bool:
        return NAMES[int(support)] == self.empties

    def right_after(self, w: Tensor) -> PartLosses:
        """The loss by which lambda is chosen: the best is 0.1."""
        return losses(abs(float(w[1]) + 1))

    def after_training(self, w: Tensor) -> PartLosses:
        name = NAMES[int(w[0])]
        self.tried.append(name)
        return losses(*self.worth[name])

    def after_a_stage(self, w: Tensor) -> PartLosses:
        name = NAMES[int(w[0])]
        self.tried_longer.append(name)
        return losses(*self.later.get(name, self.worth[name]))

    def compare_all(self, tournament: Tournament) -> list[Any]:
        return tournament.compare_all([self], self.contest_losses)

    @property
    def contest_losses(self) -> ContestLosses:
        return ContestLosses(self.right_after, self.after_training, self.after_a_stage)

    def stage(self, tournament: Tournament) -> StageChoice:
        return tournament.choose(self, self.right_after, self.after_training)


def name_of(chosen: StageChoice) -> str:
    if chosen.step == SOLVED:
        return SOLVE
    assert chosen.step == MASK
    metric: str = chosen.candidate.apply(BASE).metric
    return metric


def test_masks_and_the_solve_of_the_best_are_compared() -> None:
    world, tournament = World(plain=4.0, fisher=2.0, lamp=3.0, solve=5.0), Tournament(SPACE, BASE)
    trials = world.compare_all(tournament)
    assert world.tried == list(NAMES)
    assert world.tried_longer == ["fisher", SOLVE]
    assert [trial.loss for trial in trials] == [4.0, 2.0, 3.0, 5.0, 2.0, 5.0]
    assert [trial.step for trial in trials] == [MASK, MASK, MASK, SOLVED, MASK, SOLVED]
    assert set(world.solved) == {"fisher"}
    assert name_of(world.stage(tournament)) == "fisher"


@pytest.mark.parametrize(
    ("mask", "solve", "stays"),
    [((2.0,), (1.0,), True), ((2.0,), (2.0,), False), ((2.0, 3.0), (1.9, 3.05), False)],
)
def test_solves_stay_if_one_is_surely_better_after_as_many_steps_as_a_stage_has(
    mask: tuple[float, ...], solve: tuple[float, ...], stays: bool
) -> None:
    world, tournament = World(plain=4.0, fisher=2.0, lamp=3.0, solve=1.0), Tournament(SPACE, BASE)
    world.later = {"fisher": mask, SOLVE: solve}
    world.compare_all(tournament)
    assert tournament.entrants == (4 if stays else 3)
    assert tournament.needs_gradients  # for the metric of the mask
    world.solved.clear()
    chosen = [name_of(world.stage(tournament)) for _ in range(8)]
    assert set(chosen) == ({SOLVE} if stays else {"fisher"})
    assert bool(world.solved) == stays


def test_the_mask_of_an_excluded_solve_takes_its_place() -> None:
    """Also where the solve has beaten it twice after a few steps."""
    world, tournament = World(plain=4.0, fisher=2.0, lamp=3.0, solve=1.0), Tournament(SPACE, BASE)
    world.later = {SOLVE: (2.0,)}
    tournament.compare_all(MOST_DEFEATS * [world], world.contest_losses)
    assert tournament.needs_gradients
    assert name_of(world.stage(tournament)) == "fisher"


def test_a_surely_worse_entrant_is_excluded_after_two_comparisons() -> None:
    world, tournament = World(plain=1.0, fisher=2.0, lamp=2.0, solve=3.0), Tournament(SPACE, BASE)
    for comparisons in range(1, MOST_DEFEATS + 1):
        world.later = {SOLVE: (0.5,)}
        world.compare_all(tournament)
        assert len(world.tried) == 4 * comparisons
    assert set(world.solved) == {"plain"}
    world.tried.clear()
    for _ in range(2 * MOST_DEFEATS + 3):
        assert name_of(world.stage(tournament)) == "plain"
    assert world.tried == []  # nor is a solve in another metric left
    assert set(world.solved) == {"plain"}


def excluding() -> Tournament:
    """A tournament in which all but the plain mask have lost twice."""
    tournament, world = Tournament(SPACE, BASE), World(plain=1.0, fisher=2.0, lamp=2.0, solve=3.0)
    for _ in range(5 * MOST_DEFEATS + 1):
        world.stage(tournament)
    return tournament


def test_masks_that_have_lost_return_if_the_best_one_empties_a_layer() -> None:
    """What depends on A does not return, since A is no longer computed."""
    tournament = excluding()
    other = World(empties="lamp", plain=3.0, fisher=1.0, lamp=2.0, solve=1.0)
    chosen = other.stage(tournament)
    assert name_of(chosen) == "plain" and chosen.trials == [] and chosen.why == ""
    assert other.tried == []
    emptied = World(empties="plain", plain=3.0, fisher=1.0, lamp=2.0, solve=1.0)
    assert name_of(emptied.stage(tournament)) == "lamp"
    assert emptied.tried == ["plain", "lamp"]


def test_all_entrants_are_compared_if_the_best_one_empties_a_layer() -> None:
    tournament = Tournament(SPACE, BASE)
    World(plain=1.0, fisher=2.0, lamp=2.0, solve=2.0).stage(tournament)
    emptied = World(empties="plain", plain=3.0, fisher=1.8, lamp=3.5, solve=2.5)
    assert name_of(emptied.stage(tournament)) == "fisher"
    assert sorted(emptied.tried) == sorted([*METRICS, *len(METRICS) * [SOLVE]])


def test_rivals_take_turns_until_they_have_lost_twice() -> None:
    world, tournament = World(plain=1.0, fisher=2.0, lamp=3.0, solve=4.0), Tournament(SPACE, BASE)
    rivals = []
    for _ in range(12):
        world.tried.clear()
        assert name_of(world.stage(tournament)) == "plain"
        rivals.append([name for name in world.tried if name != "plain"])
    met = [name for (name,) in filter(None, rivals)]
    assert sorted(met) == sorted(MOST_DEFEATS * ["fisher", "lamp", *len(METRICS) * [SOLVE]])
    assert rivals[10:] == [[], []]


def test_a_rival_that_is_surely_better_replaces_the_best() -> None:
    tournament = Tournament(SPACE, BASE)
    World(plain=1.0, fisher=2.0, lamp=2.0, solve=2.0).compare_all(tournament)
    later = World(plain=2.0, fisher=2.0, lamp=1.0, solve=2.0)
    found = [name_of(later.stage(tournament)) for _ in range(6)]
    assert found[0] == "plain" and found[-1] == "lamp"
    assert sorted(found, key=["plain", "lamp"].index) == found


@pytest.mark.parametrize(("gain", "wins"), [(0.05, False), (0.5, True)])
def test_a_difference_within_two_standard_errors_changes_nothing(gain: float, wins: bool) -> None:
    """The difference has a standard error of 0.1."""
    noise = [1.0, -1.0] * 50
    even, other = (tuple(2.0 for _ in noise), tuple(2 + each - gain for each in noise))
    tournament = Tournament(SPACE, BASE)
    world = World(plain=even, fisher=other, lamp=other, solve=other)
    found = {name_of(world.stage(tournament)) for _ in range(12)}
    assert (found != {"plain"}) == wins
    assert (sum(tournament.state()["defeats"]) > 0) == wins


def test_a_solve_takes_the_lambda_with_the_least_loss() -> None:
    world, tournament = World(plain=2.0, fisher=2.0, lamp=2.0, solve=1.0), Tournament(SPACE, BASE)
    world.compare_all(tournament)
    chosen = world.stage(tournament)
    assert name_of(chosen) == SOLVE
    assert chosen.choice.ridge == pytest.approx(0.1)
    assert chosen.choice.solution.iterations == 3
    given_ridge = Tournament(SPACE, BASE, ridge=0.3)
    world.ridges.clear()
    world.compare_all(given_ridge)
    assert set(world.ridges) == {0.3}


def test_gradients_are_needed_until_entrants_that_use_them_are_excluded() -> None:
    assert Tournament(SPACE, BASE).needs_gradients
    assert not excluding().needs_gradients
    masks = CandidateSpace(AXES, (("plain", "lamp"), (True,), (Blocks(2000, 0),), (1.0,)))
    assert not Tournament(masks, BASE).needs_gradients  # masks by the weights alone


def test_a_short_matrix_is_not_solved() -> None:
    """With blocks only, A is too short to couple all columns."""
    tournament = Tournament(BLOCKS, BASE)
    world = World(plain=1.0, fisher=2.0, lamp=3.0)
    world.compare_all(tournament)
    assert world.tried == list(METRICS) and tournament.entrants == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_losses_that_are_not_finite(bad: float) -> None:
    tournament = Tournament(SPACE, BASE)
    world = World(plain=bad, fisher=2.0, lamp=bad, solve=bad)
    world.compare_all(tournament)
    assert name_of(world.stage(tournament)) == "fisher"
    with pytest.raises(ChitaError, match=naming("held-out loss", "finite")):
        World(plain=bad, fisher=bad, lamp=bad, solve=bad).stage(tournament)


def test_without_held_out_samples_the_first_mask_is_taken() -> None:
    world = World()
    chosen = Tournament(SPACE, BASE).only(world)
    assert name_of(chosen) == "plain"
    assert (chosen.trials, chosen.why, chosen.choice.losses) == ([], "", None)


VALUES = st.floats(0, 1)
LOSSES = st.builds(World, plain=VALUES, fisher=VALUES, lamp=VALUES, solve=VALUES)


@given(st.lists(LOSSES, max_size=5), st.lists(LOSSES, min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_a_tournament_that_goes_on_from_its_state_chooses_the_same(
    before: list[World], after: list[World]
) -> None:
    """The state goes through JSON, as it does in a stage file."""
    one, other = Tournament(SPACE, BASE), Tournament(SPACE, BASE)
    for number, world in enumerate(before):
        world.compare_all(one) if number < 2 else world.stage(one)
    other.load_state(json.loads(json.dumps(one.state())))
    assert other.state() == one.state()
    assert other.needs_gradients == one.needs_gradients
    for world in after:
        first, second = world.stage(one), world.stage(other)
        assert name_of(first) == name_of(second)
        assert [t.to_dict() for t in first.trials] == [t.to_dict() for t in second.trials]
    assert other.state() == one.state()


@given(st.lists(LOSSES, min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_the_choice_is_the_better_of_two(stages: list[World]) -> None:
    """With a single part any difference counts, so that the choice never has the higher loss."""
    tournament = Tournament(SPACE, BASE)
    for world in stages:
        chosen = world.stage(tournament)
        if chosen.trials:
            assert chosen.choice.held_out_loss == min(trial.loss for trial in chosen.trials)
            assert len(world.tried) == len(chosen.trials)
