"""The range test, the worth of candidates and the guard, on samples that are held out."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from chita.model.distill import DenseNetwork
from chita.model.weights import Weights
from chita.pruning.held_out import HeldOut, PartLosses
from chita.pruning.recovery.guarded_training import TEST_KEY, GuardedTraining
from chita.pruning.recovery.range_test import ALMOST, HALF_DECADES, TEST_STEPS
from chita.pruning.recovery.training import RecoveryTraining
from chita.solver.ranks import ALONE
from tests.support.pruning import points, same, snapshot
from tests.support.recovering import batch_of, halved, kept_of, normalised, task_of

FASTEST = 10 ** (HALF_DECADES[-1] / 2)


class World:
    """A dense network, a pruned one, and its recovery."""

    def __init__(self) -> None:
        self.dense = normalised()
        self.pruned = halved(self.dense)
        self.weights = Weights(self.pruned)
        self.kept = self.weights.vector() != 0
        teacher = DenseNetwork(self.dense, batch_of(points(20)[0]), 0, squares=False)
        held = [teacher.answers(batch_of(points(60, seed=1)[0]))]
        self.held_out = HeldOut(self.pruned, self.weights, held, teacher.divergence, ALONE)
        self.training = self.trainer(self.pruned)
        self.recovery = GuardedTraining(
            self.pruned, self.weights, self.training, self.held_out.losses_now
        )

    def trainer(self, model: Any) -> RecoveryTraining:
        parameters = [weight.parameter for weight in Weights(model)]
        return RecoveryTraining(model, parameters, task_of(self.dense))


def test_the_worth_of_weights_is_their_loss_after_some_steps() -> None:
    world = World()
    before = snapshot(world.pruned)
    w = world.weights.vector() * (torch.arange(72) % 3 > 0)
    found = world.recovery.worth(w, steps=15, rate=0.03)
    assert same(snapshot(world.pruned), before)
    assert world.recovery.check_seconds > 0
    other = copy.deepcopy(world.pruned)
    Weights(other).assign(w)
    world.trainer(other).train(kept_of(other), steps=15, rate=0.03, key=TEST_KEY)
    for mine, own in zip(other.parameters(), world.pruned.parameters(), strict=True):
        own.data.copy_(mine.data)
    for mine, own in zip(other.buffers(), world.pruned.buffers(), strict=True):
        own.copy_(mine)
    assert torch.equal(world.held_out.losses_now().losses, found.losses)


def test_candidates_are_trained_on_the_same_samples() -> None:
    world = World()
    w = world.weights.vector()
    first, again = (world.recovery.worth(w, steps=10, rate=0.03) for _ in range(2))
    assert torch.equal(first.losses, again.losses)


def test_the_range_test_finds_the_best_rate_nearby_and_changes_nothing() -> None:
    world = World()
    before, w = snapshot(world.pruned), world.weights.vector()
    loss = world.held_out.losses_now().mean
    rate = world.recovery.find_rate(w)
    assert rate is not None
    assert same(snapshot(world.pruned), before)
    own, *others = (
        world.recovery.worth(w, steps=TEST_STEPS, rate=other).mean
        for other in (rate, rate / math.sqrt(10), min(rate * math.sqrt(10), FASTEST))
    )
    assert loss - own >= ALMOST * (loss - min(others)) > 0
    assert 0 < world.recovery.step_seconds < 1


def test_a_training_that_helps_is_kept() -> None:
    world = World()
    before, calls = world.held_out.losses_now(), [0]

    def progress() -> None:
        calls[0] += 1

    found = world.recovery.run(world.kept, steps=60, rate=0.05, key=1, progress=progress)
    assert found.kept and calls == [60]
    assert torch.equal(found.before.losses, before.losses)
    assert torch.equal(found.after.losses, world.held_out.losses_now().losses)
    assert found.after.mean < 0.8 * found.before.mean
    assert torch.equal(world.weights.vector() != 0, world.kept)


@pytest.mark.parametrize("rate", [1e5, math.nan])
def test_a_training_that_does_not_help_is_undone_to_the_bit(rate: float) -> None:
    world = World()
    before = snapshot(world.pruned)
    found = world.recovery.run(world.kept, steps=5, rate=rate, key=1)
    assert not found.kept and found.after is found.before
    assert same(snapshot(world.pruned), before)


def test_a_network_that_answers_as_the_dense_one_stays_as_it_is() -> None:
    """Nothing is to be gained: the loss is zero."""
    world = World()
    world.pruned.load_state_dict(world.dense.state_dict())
    before = snapshot(world.pruned)
    found = world.recovery.run(torch.ones(72, dtype=torch.bool), steps=5, rate=0.05, key=1)
    assert not found.kept
    assert same(snapshot(world.pruned), before)


def test_losses_that_were_not_finite_are_better_finite() -> None:
    world = World()
    with torch.no_grad():
        world.pruned[1].running_mean.fill_(math.nan)
    losses = [world.held_out.losses_now()]
    assert not math.isfinite(losses[0].mean)

    def reset() -> PartLosses:
        """The statistics of training replace those that were not finite."""
        if len(losses) > 1:
            world.pruned[1].running_mean.zero_()
        losses.append(world.held_out.losses_now())
        return losses[-1]

    recovery = GuardedTraining(world.pruned, world.weights, world.training, reset)
    found = recovery.run(world.kept, steps=5, rate=0.01, key=1)
    assert found.kept and math.isfinite(found.after.mean)


@pytest.mark.parametrize("moment", [1, 4])
@pytest.mark.parametrize("where", ["step", "loss"])
def test_an_interruption_restores_everything(moment: int, where: str) -> None:
    world = World()
    before, calls = snapshot(world.pruned), 0

    def interrupt() -> None:
        nonlocal calls
        calls += 1
        if calls == moment:
            raise KeyboardInterrupt

    def losses() -> PartLosses:
        found = world.held_out.losses_now()
        if where == "loss" and not same(snapshot(world.pruned), before):
            raise KeyboardInterrupt
        return found

    recovery = GuardedTraining(world.pruned, world.weights, world.training, losses)
    with pytest.raises(KeyboardInterrupt):
        recovery.run(
            world.kept,
            steps=6,
            rate=0.05,
            key=1,
            progress=interrupt if where == "step" else None,
        )
    assert same(snapshot(world.pruned), before)
    if where == "loss":
        with pytest.raises(KeyboardInterrupt):
            recovery.worth(world.weights.vector(), steps=3, rate=0.05)
        assert same(snapshot(world.pruned), before)
