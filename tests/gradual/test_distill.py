"""Trainings against the outputs of the dense network."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import chita
from chita.data import Batches, ImageData, Splits
from chita.errors import ChitaError
from chita.gradual.epoch_file import EpochFile
from chita.gradual.registry import METHODS, REFERENCES
from tests.gradual.small import RECIPE, linear_network, same, small_network, small_splits, train
from tests.support.messages import naming

RECIPE = replace(RECIPE, distill=True)
ONE_EPOCH = replace(
    RECIPE,
    epochs=1,
    pruning_steps=1,
    methods={name: {"samples": 20, "batch": 2} for name in (*RECIPE.methods, "chita++")},
)


def shuffled(splits: Splits) -> Splits:
    """The same images with each other's labels."""
    assert isinstance(splits.train, ImageData)
    labels = splits.train.labels.roll(1)
    assert (labels != splits.train.labels).float().mean() > 0.8
    return replace(splits, train=replace(splits.train, labels=labels))


@torch.no_grad()
def divergence(model: nn.Module, dense: nn.Module) -> float:
    inputs, _ = next(iter(Batches(small_splits().test, 100)))
    p, p0 = (each.eval()(inputs).log_softmax(1) for each in (model, dense))
    return float(F.kl_div(p, p0, reduction="batchmean", log_target=True))


@pytest.mark.parametrize("method", ["global-magnitude", "gmp", "rigl"])
@pytest.mark.parametrize("distill", [True, False])
def test_labels_matter_only_without_distillation(method: str, distill: bool) -> None:
    one, other, recipe = small_network(), small_network(), replace(RECIPE, distill=distill)
    train(one, method=method, recipe=recipe)
    train(other, method=method, recipe=recipe, data=shuffled(small_splits()))
    assert same(one, other) == distill


@pytest.mark.slow
def test_the_gradients_of_pruning_steps_can_do_without_labels_too() -> None:
    one, other = small_network(), small_network()
    settings = {"samples": 20, "batch": 2, "loss": "distill"}
    recipe = replace(RECIPE, methods={"chita-bso": settings})
    train(one, recipe=recipe)
    train(other, recipe=recipe, data=shuffled(small_splits()))
    assert same(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["global-magnitude", "rigl"])
def test_the_network_approaches_its_teacher(method: str) -> None:
    """From where pruning, or fresh weights, left it."""
    dense, model, pruned, fresh = (linear_network() for _ in range(4))
    train(dense, method="dense", sparsity=0.0, recipe=replace(RECIPE, distill=False, epochs=20))
    for each in (model, pruned):
        each.load_state_dict(dense.state_dict())
    chita.prune(pruned, [], sparsity=0.9, method="magnitude", progress=False)
    before = divergence(fresh if METHODS[method].from_scratch else pruned, dense)
    history = train(model, method=method, sparsity=0.9, recipe=replace(RECIPE, epochs=20))
    assert divergence(model, dense) < 0.5 * before
    assert history.sparsity == pytest.approx(0.9, abs=1e-3)


def test_the_teacher_is_the_model_as_given_and_does_not_change() -> None:
    """A model that trains without pruning stays where it is, but for rounding."""
    model = linear_network()
    recipe = replace(RECIPE, weight_decay=0.0, first_sparsity=0.0)
    history = train(model, method="global-magnitude", sparsity=0.0, recipe=recipe)
    for tensor, given in zip(model.parameters(), linear_network().parameters(), strict=True):
        assert torch.allclose(tensor, given, atol=1e-5)
    assert all(row.loss == pytest.approx(0.0, abs=1e-6) for row in history.rows)


def test_from_scratch_the_teacher_decides() -> None:
    one, other = small_network(0), small_network(1)
    train(one, method="rigl", recipe=RECIPE)
    train(other, method="rigl", recipe=RECIPE)
    assert not same(one, other)


@pytest.mark.parametrize("method", [*METHODS, *REFERENCES])
def test_every_method_distills(method: str) -> None:
    model = small_network()
    sparsity = 0.0 if method in REFERENCES else 0.8
    history = train(model, method=method, sparsity=sparsity, recipe=ONE_EPOCH)
    assert history.sparsity == pytest.approx(sparsity, abs=1e-3)


def interrupt_in_the_second_epoch(done: int, total: int) -> None:
    if done == 6:
        raise KeyboardInterrupt


def broken_off(folder: Path, **changes: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(small_network(), out=folder, progress=interrupt_in_the_second_epoch, **changes)
    assert EpochFile.done(folder) == (1, 5)


@pytest.mark.slow
def test_a_resumed_training_must_distill_from_the_same_teacher(tmp_path: Path) -> None:
    given: dict[str, Any] = {"method": "rigl", "out": tmp_path}
    broken_off(tmp_path, method="rigl", recipe=RECIPE)
    with pytest.raises(ChitaError, match=naming("distill", True, False)):
        train(small_network(), recipe=replace(RECIPE, distill=False), resume=True, **given)
    with pytest.raises(ChitaError, match=naming("teacher")):
        train(small_network(1), recipe=RECIPE, resume=True, **given)
    whole, resumed = small_network(), small_network()
    train(whole, method="rigl", recipe=RECIPE)
    train(resumed, recipe=RECIPE, resume=True, **given)
    assert same(whole, resumed)
