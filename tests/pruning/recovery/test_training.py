"""The training of recovery: what it changes, what it leaves, and that it repeats to the bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends import cudnn

import chita
from chita.model.samples.batch import Batch
from chita.model.weights import Weights
from chita.pruning.recovery.objective import LOSS, RecoveryTask
from chita.pruning.recovery.pool import SamplePool
from chita.pruning.recovery.training import RecoveryTraining
from tests.support.clock import StepClock
from tests.support.pruning import numbers, points, same, seeded, snapshot, tiny
from tests.support.recovering import Tied, batch_of, halved, kept_of, normalised, task_of


def trainer(pruned: nn.Module, task: RecoveryTask, seed: int = 0) -> RecoveryTraining:
    parameters = [weight.parameter for weight in Weights(pruned)]
    return RecoveryTraining(pruned, parameters, task, seed=seed)


def train(pruned: nn.Module, task: RecoveryTask, steps: int = 10, **more: Any) -> float:
    arguments: dict[str, Any] = {"rate": 0.01, "key": 1, **more}
    seed = arguments.pop("seed", 0)
    return trainer(pruned, task, seed).train(kept_of(pruned), steps=steps, **arguments)


def test_the_loss_falls_and_zeros_stay() -> None:
    model: Any = tiny()
    pruned, task = halved(model), task_of(model)
    zeros = Weights(pruned).vector() == 0
    with torch.no_grad():
        before = float(task.objective(pruned, task.example))
        train(pruned, task, 100, rate=0.1)
        after = float(task.objective(pruned, task.example))
    assert after < 0.5 * before
    assert torch.equal(Weights(pruned).vector() == 0, zeros)


def test_the_mean_loss_of_the_last_steps_is_returned() -> None:
    """With a rate of almost zero, all steps have the loss of the network as it is."""
    model: Any = tiny()
    pruned = halved(model)
    task = RecoveryTask(
        LOSS, task_of(model).pool, lambda net, batch: net(points(5)[0]).square().mean()
    )
    found = train(pruned, task, 8, rate=1e-15)
    assert found == pytest.approx(float(pruned(points(5)[0]).square().mean().detach()))


def test_batch_norm_learns_statistics_and_dropout_is_off() -> None:
    model = normalised()
    pruned, task = halved(model), task_of(model)
    modes: list[list[bool]] = []
    pruned[3].register_forward_hook(lambda *_: modes.append([module.training for module in pruned]))
    pruned.train()
    pruned[2].eval()
    train(pruned, task, 10)
    assert modes == [[False, True, False, False, False]] * 10
    assert int(pruned[1].num_batches_tracked) == 10
    assert not torch.equal(pruned[1].running_mean, model[1].running_mean)
    assert not torch.equal(pruned[1].weight, model[1].weight)
    assert [module.training for module in pruned] == [True, True, False, True, True]


def test_the_statistics_of_one_sample_are_not_used() -> None:
    model = normalised()
    task, pruned = task_of(model, points(1)[0]), halved(model)
    train(pruned, task, 3)
    assert torch.equal(pruned[1].running_var, model[1].running_var)
    assert not torch.equal(pruned[0].weight, halved(model)[0].weight)


def test_recovery_never_lets_cudnn_try_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shape of a batch would take seconds, and the last batches differ in theirs."""
    monkeypatch.setattr(cudnn, "benchmark", True)
    model: Any = tiny()
    pruned, found = halved(model), set()
    pruned.register_forward_hook(lambda *_: found.add((torch.is_grad_enabled(), cudnn.benchmark)))
    chita.recover(pruned, [points(60)[0]], teacher=model, budget="5 steps", progress=False)
    assert found == {(True, False), (False, False)}
    assert cudnn.benchmark


def test_a_shape_with_one_sample_does_not_stop_batch_norm() -> None:
    """Batch norm cannot normalise a batch of one vector."""

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layers(x.mean(1, keepdim=True))
            return out

    model: Any = seeded(Pooled).double()
    inputs = [numbers(32, 6), numbers(1, 5)]
    objective = task_of(model, inputs[0]).objective
    pool = SamplePool([task_of(model, x).example for x in inputs], 16)
    pruned = halved(model)
    train(pruned, RecoveryTask(LOSS, pool, objective), 6)
    assert not torch.equal(pruned.layers[0].bias, model.layers[0].bias)


def test_frozen_parameters_that_are_not_pruned_stay_bit_for_bit() -> None:
    model = normalised()
    pruned, task = halved(model), task_of(model)
    for parameter in (pruned[0].weight, pruned[0].bias, pruned[1].weight):
        parameter.requires_grad_(False)
    before = snapshot(pruned)
    train(pruned, task)
    after = snapshot(pruned)
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    buffers = {f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert moved == {"0.weight", "1.bias", "4.weight", "4.bias"} | buffers
    flags = {name: p.requires_grad for name, p in pruned.named_parameters()}
    assert [name for name, flag in flags.items() if not flag] == ["0.weight", "0.bias", "1.weight"]
    assert all(p.grad is None for p in pruned.parameters())


class Failure(BaseException):
    """Not an ordinary error, as a KeyboardInterrupt is not."""


def test_flags_modes_and_gradients_are_restored_after_an_error() -> None:
    model = normalised()
    pruned, task = halved(model), task_of(model)
    pruned.train()
    pruned[2].eval()
    pruned[4].weight.requires_grad_(False)
    calls = 0

    def progress() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Failure

    state = torch.get_rng_state()
    with pytest.raises(Failure):
        train(pruned, task, progress=progress)
    assert [module.training for module in pruned] == [True, True, False, True, True]
    assert not pruned[4].weight.requires_grad and pruned[4].bias.requires_grad
    assert all(p.grad is None for p in pruned.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


class Draws(nn.Module):
    """A layer that draws at random also in evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)


def test_the_seed_and_the_key_determine_every_bit() -> None:
    model = normalised()
    model[2] = nn.Sequential(nn.Tanh(), Draws())
    task, start = task_of(model), halved(model)
    found = []
    for seed, key in ((0, 1), (0, 1), (0, 2), (1, 1)):
        torch.rand(3)  # the global generator has another state each time
        state = torch.get_rng_state()
        pruned = copy.deepcopy(start)
        train(pruned, task, seed=seed, key=key)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(snapshot(pruned))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])
    assert not same(found[0], found[3])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_also_where_they_are_disabled(mode: Any) -> None:
    model = normalised()
    one, other = halved(model), halved(model)
    train(one, task_of(model))
    with mode():
        train(other, task_of(model))
    assert same(snapshot(one), snapshot(other))


def test_progress_and_the_time_of_a_step() -> None:
    model: Any = tiny()
    pruned = halved(model)
    training, calls = trainer(pruned, task_of(model)), [0]

    def progress() -> None:
        calls[0] += 1

    assert training.step_seconds == 0
    training.train(kept_of(pruned), steps=7, rate=0.01, key=0, progress=progress)
    assert calls == [7]
    assert 0 < training.step_seconds < 1


@pytest.mark.parametrize(("at_once", "steps"), [(1, 3), (4, 3), (4, 8), (4, 9)])
def test_the_time_of_a_step_includes_its_new_inputs(
    at_once: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New inputs take a second for each batch, also if several batches get them at once."""
    model: Any = tiny()
    clock, drawn = StepClock(monkeypatch, step=0.5), task_of(model)

    def mix(batches: list[Batch], generator: torch.Generator) -> list[Batch]:
        clock.now += len(batches)
        return batches

    monkeypatch.setattr(RecoveryTask, "ahead", lambda task, steps: min(at_once, steps))
    task = RecoveryTask(LOSS, drawn.pool, drawn.objective, drawn.view, mix)
    pruned = halved(model)
    training = trainer(pruned, task)
    training.train(kept_of(pruned), steps=steps, rate=0.01, key=0)
    assert training.step_seconds == pytest.approx(1.5)


def test_shared_weights_are_trained_once() -> None:
    model: Any = seeded(Tied).double()
    pruned, task = halved(model), task_of(model)
    training = trainer(pruned, task)
    assert len(training.parameters) == len({id(p) for p in training.parameters}) == 5
    zeros = pruned.one.weight == 0
    train(pruned, task)
    assert pruned.one.weight is pruned.two.weight
    assert torch.equal(pruned.two.weight == 0, zeros)
    assert not torch.equal(pruned.one.weight, halved(model).one.weight)


def test_integer_parameters_are_left_alone() -> None:
    model: Any = tiny()
    pruned = halved(model)
    pruned.number = nn.Parameter(torch.tensor(3), requires_grad=False)
    train(pruned, task_of(model))
    assert int(pruned.number) == 3


def test_samples_are_those_of_the_task() -> None:
    seen: list[Tensor] = []
    model: Any = tiny()
    task = task_of(model)

    def objective(net: nn.Module, batch: Any) -> Tensor:
        seen.append(batch.content[0][0])
        return task.objective(net, batch)

    inputs = points(32)[0]
    pool = SamplePool([task_of(model, inputs).example], 16)
    train(halved(model), RecoveryTask(LOSS, pool, objective), 4)
    for start in (0, 2):
        passed = torch.cat(seen[start : start + 2])
        assert torch.equal(passed.sort(0).values, batch_of(inputs).content[0][0].sort(0).values)  # type: ignore[index]
