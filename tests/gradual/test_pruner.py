"""GradualPruner: pruning steps, the mask between them, and going on from a saved state."""

from __future__ import annotations

import copy
import io
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import chita
from chita.errors import ChitaError
from chita.gradual import GradualPruner, PruningSchedule
from chita.model.weights import Weights
from tests.gradual.loops import CALIBRATION, OPTIMIZERS, assert_sparse, images, network, train
from tests.support.messages import naming, says
from tests.support.pruning import cut, points, same, snapshot, tiny


def sgd(model: nn.Module, **more: Any) -> Optimizer:
    return SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-2, **more})


def averages(optimizer: Optimizer, parameter: Tensor) -> list[Tensor]:
    """What the optimizer remembers of each entry of a parameter."""
    return [v for v in optimizer.state[parameter].values() if v.shape == parameter.shape]


@pytest.mark.parametrize("method", ["chita-bso", "magnitude", "m-fac"])
def test_a_step_is_chita_prune(method: str) -> None:
    model = network().train()
    settings = {"seed": 3, "exclude": "fc.*", **CALIBRATION}
    pruner = GradualPruner(model, sgd(model), [0.5, 0.9], method, **settings)
    for number, sparsity in enumerate([0.5, 0.9]):
        expected, before = copy.deepcopy(model), snapshot(model)
        wanted = chita.prune(
            expected,
            images(),
            sparsity=sparsity,
            method=method,
            progress=False,
            **{**settings, "seed": 3 + number},
            recover=False,
        )
        found = pruner.step(images())
        assert same(snapshot(model), snapshot(expected))
        assert not same(snapshot(model), before)
        assert same(pruner.masks, wanted.masks)
        assert found.nonzeros == wanted.nonzeros
        assert found.config.method == method
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("method", ["chita-bso", "magnitude"])
def test_the_mask_holds(name: str, method: str) -> None:
    model = network()
    keys, optimizer = list(model.state_dict()), OPTIMIZERS[name](model.parameters())
    pruner = GradualPruner(model, optimizer, [0.5, 0.8, 0.95], method, **CALIBRATION)
    train(model, optimizer)
    checked = 0

    def check(sparsity: float) -> None:
        nonlocal checked
        checked += 1
        assert_sparse(pruner, model, sparsity)
        for weight, mask in zip(pruner.weights, pruner.masks.values(), strict=True):
            remembered = averages(optimizer, weight.parameter)
            assert remembered
            for average in remembered:
                assert not average[~mask].any()
                assert average[mask].any() or not mask.any()

    for sparsity in (0.5, 0.8, 0.95):
        pruner.step(images())
        check(sparsity)  # the momentum of the dense weights is gone at once
        train(model, optimizer, partial(check, sparsity))
    assert checked == 21
    pruner.finalize()
    pruned = Weights(model).vector()
    assert not torch.signbit(pruned[pruned == 0]).any()
    assert_sparse(pruner, model, 0.95)
    assert list(model.state_dict()) == keys
    train(model, optimizer)
    assert int((Weights(model).vector() == 0).sum()) == 0, "finalize lets go of the optimizer"


def test_a_weight_may_come_back_without_momentum() -> None:
    model = network()
    optimizer = sgd(model)
    pruner = GradualPruner(model, optimizer, [0.8, 0.8], "magnitude")
    pruner.step(())
    train(model, optimizer)
    pruned = (~pruner.masks["fc.weight"]).nonzero()[0].tolist()
    with torch.no_grad():  # as a solver might find it
        model.get_parameter("fc.weight")[tuple(pruned)] = 9.0
    pruner.step(())
    assert bool(pruner.masks["fc.weight"][tuple(pruned)])
    (momentum,) = averages(optimizer, model.get_parameter("fc.weight"))
    assert momentum[tuple(pruned)] == 0
    train(model, optimizer)
    assert momentum[tuple(pruned)] != 0


def test_pruning_happens_when_the_schedule_says() -> None:
    model = tiny()
    schedule = PruningSchedule((1, 3, 4), (0.25, 0.5, 0.75))
    pruner = GradualPruner(model, sgd(model), schedule, batch=2, ridge=0.01)
    done = []
    for epoch in [0, 1, 1, 2, 3, 4, 5]:
        pruner.begin_epoch(epoch, cut(points(24), 8))
        done.append(pruner.steps_done)
    assert done == [0, 1, 1, 1, 2, 3, 3]
    assert int((Weights(model).vector() != 0).sum()) == 18


def test_steps_that_were_missed_are_made() -> None:
    model = tiny()
    schedule = PruningSchedule((1, 3, 7), (0.25, 0.5, 0.75))
    pruner = GradualPruner(model, sgd(model), schedule, batch=2, ridge=0.01)
    pruner.begin_epoch(5, cut(points(24), 8))
    assert pruner.steps_done == 2
    assert int((Weights(model).vector() != 0).sum()) == 36


def run(epochs: range, saved: bytes | None = None) -> tuple[bytes, nn.Module]:
    """Training over `epochs`, from a saved state if there is one, and the state at the end."""
    model = network()
    torch.manual_seed(0)  # dropout draws from the global generator
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    schedule = PruningSchedule((0, 2, 3), (0.5, 0.8, 0.9))
    pruner = GradualPruner(model, optimizer, schedule, **CALIBRATION)
    if saved is not None:
        state = torch.load(io.BytesIO(saved), weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        pruner.load_state_dict(state["pruner"])
        torch.set_rng_state(state["random"])
    for epoch in epochs:
        pruner.begin_epoch(epoch, images())
        train(model, optimizer)
    file = io.BytesIO()
    state = {"model": model, "optimizer": optimizer, "pruner": pruner}
    random = torch.get_rng_state()
    torch.save({**{key: part.state_dict() for key, part in state.items()}, "random": random}, file)
    assert_sparse(pruner, model, schedule.sparsities[pruner.steps_done - 1])
    return file.getvalue(), model


@pytest.mark.parametrize("cut_at", [1, 2, 3])
def test_a_saved_state_goes_on_in_the_same_way(cut_at: int) -> None:
    with torch.random.fork_rng():
        _, whole = run(range(4))
        saved, _ = run(range(cut_at))
        _, resumed = run(range(cut_at, 4), saved)
    assert same(snapshot(resumed), snapshot(whole))


def test_masks_of_a_state_are_zero_or_one() -> None:
    model = tiny()
    pruner = GradualPruner(model, sgd(model), [0.5, 0.9], "magnitude")
    pruner.step(())
    state, before, own = pruner.state_dict(), snapshot(model), pruner.masks
    for value in (0.5, 2.0, -1.0, float("nan")):
        mask = own["0.weight"].double()
        mask[3, 4] = value
        with pytest.raises(ChitaError, match=naming("0.weight", value)):
            pruner.load_state_dict({**state, "masks": {**own, "0.weight": mask}})
        assert same(snapshot(model), before) and same(pruner.masks, own)
    for done in (-1, 3, 0.5, "1", None):
        with pytest.raises(ChitaError, match=naming("steps_done", done)):
            pruner.load_state_dict({**state, "steps_done": done})
    numbers = {name: mask.float() for name, mask in own.items()}  # as an older file may have them
    pruner.load_state_dict({**state, "masks": numbers})
    assert same(pruner.masks, own) and pruner.steps_done == 1


def test_a_state_of_another_pruner_is_refused() -> None:
    model = tiny()

    def made(schedule: Any, **more: Any) -> GradualPruner:
        return GradualPruner(model, sgd(model), schedule, "magnitude", **more)

    state = made([0.5, 0.9]).state_dict()
    made([0.5, 0.9]).load_state_dict(state)
    with pytest.raises(ChitaError, match=naming("sparsities", [0.5, 0.9], [0.5, 0.8])):
        made([0.5, 0.8]).load_state_dict(state)
    with pytest.raises(ChitaError, match=naming("epochs", None, [0, 4])):
        made(PruningSchedule((0, 4), (0.5, 0.9))).load_state_dict(state)
    with pytest.raises(
        ChitaError, match=naming("masks", "2.weight", "prunable", "{'0.weight': (8, 6)}")
    ):
        made([0.5, 0.9], exclude="2.*").load_state_dict(state)
    for wrong, got in (({}, "[]"), ({"masks": {}}, "['masks']"), (None, "None")):
        with pytest.raises(ChitaError, match=naming("state", "state_dict()", got)):
            made([0.5, 0.9]).load_state_dict(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedule", "more", "message"),
    [
        ([0.5, 1.0], {}, naming("sparsities", 1.0)),
        ([0.5, 0.4], {}, naming("sparsities", 0.4)),
        ([], {}, naming("sparsities", "()")),
        ([0.5], {"method": "chita-xyz"}, naming("method", "chita-xyz")),
        (0.3, {}, naming("schedule", "PruningSchedule", 0.3)),
        (None, {}, naming("schedule", "PruningSchedule", None)),
        ([0.5], {"start": 0.1}, naming("start", "schedule")),
        ([0.5], {"method": "auto", "min_accuracy": 101}, naming("min_accuracy", "schedule")),
        (
            [0.5],
            {"method": "auto", "max_loss_increase": 1},
            naming("max_loss_increase", "schedule"),
        ),
        ([0.5], {"smaples": 3}, naming("smaples", "samples")),
        ([0.5], {"samples": 0}, naming("samples", 0)),
        ([0.5], {"exclude": "nothing"}, naming("exclude", "nothing", "0.weight")),
    ],
)
def test_arguments_are_checked_before_training(schedule: Any, more: Any, message: str) -> None:
    model = tiny()
    with pytest.raises(ChitaError, match=message):
        GradualPruner(model, sgd(model), schedule, **more)


def test_weights_that_another_optimizer_steps_are_refused() -> None:
    model = tiny()
    with pytest.raises(ChitaError, match=naming("optimizer", "torch.optim.Optimizer", "NoneType")):
        GradualPruner(model, None, [0.5])  # type: ignore[arg-type]
    with pytest.raises(ChitaError, match=naming("model", "torch.nn.Module", "NoneType")):
        GradualPruner(None, sgd(model), [0.5])  # type: ignore[arg-type]
    with pytest.raises(ChitaError, match=naming("optimizer", "exclude='0.weight'")):
        GradualPruner(model, sgd(model[2]), [0.5])
    GradualPruner(model, sgd(model[2]), [0.5], exclude="0.*")
    model[0].requires_grad_(False)
    GradualPruner(model, sgd(model[2]), [0.5])


def test_calls_that_do_not_fit_the_schedule(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny()
    pruner = GradualPruner(model, sgd(model), [0.5, 0.6], "magnitude")
    with pytest.raises(ChitaError, match=naming("schedule", "step(batches)", "PruningSchedule")):
        pruner.begin_epoch(0, ())
    timed = GradualPruner(model, sgd(model), PruningSchedule((0,), (0.5,)), "magnitude")
    with pytest.raises(ChitaError, match=naming("epoch", "'a'")):
        timed.begin_epoch("a", ())  # type: ignore[arg-type]
    pruner.step(())
    pruner.finalize()
    assert says(caplog.text, 1, "pruning steps")
    pruner.step(())
    with pytest.raises(ChitaError, match=naming(2, "steps", "schedule")):
        pruner.step(())


def test_a_step_that_fails_changes_nothing() -> None:
    model = tiny()
    pruner = GradualPruner(model, sgd(model), [0.5, 0.75], batch=2, ridge=0.01)
    pruner.step(cut(points(24), 8))
    before, masks = snapshot(model), pruner.masks
    with pytest.raises(ChitaError, match=naming("batches", "samples")):
        pruner.step([])
    assert pruner.steps_done == 1
    assert same(pruner.masks, masks)
    assert same(snapshot(model), before)
