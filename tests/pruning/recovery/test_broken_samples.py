"""What is not finite is named, wherever recovery meets it: a sample, a network or the loss."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import chita
from chita.errors import ChitaError
from tests.support.messages import naming, says
from tests.support.pruning import points, same, snapshot, tiny
from tests.support.recovering import halved, normalised, recover

PLACES = range(0, 200, 23)  # some of these samples are held out


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("teaches", [True, False])
def test_recover_names_the_sample(place: int, norm: bool, teaches: bool) -> None:
    dense: Any = normalised() if norm else tiny()
    inputs, labels = (tensor.clone() for tensor in points(200))
    inputs[place, 1] = math.nan
    parts = list(zip(inputs.split(30), labels.split(30), strict=True))
    loader: Any = DataLoader(TensorDataset(inputs, labels), 30)
    in_batch = naming(f"sample {place % 30}", f"batch {place // 30}", "batches", "finite")
    for batches, message in (
        (parts, in_batch),
        (loader, in_batch),
        ((inputs, labels), naming(f"sample {place}", "batches", without="batch")),
    ):
        model = halved(dense)
        before = snapshot(model)
        how: dict[str, Any] = {"teacher": dense} if teaches else {"loss": "cross_entropy"}
        with pytest.raises(ChitaError, match=message):
            chita.recover(model, batches, budget="20 steps", progress=False, **how)
        assert same(snapshot(model), before)


def test_pruning_names_a_sample_that_only_its_training_reads() -> None:
    """The rows of A are a part of the samples."""
    named = 0
    for place in PLACES:
        inputs, labels = (tensor.clone() for tensor in points(200))
        inputs[place] = math.inf
        model = nn.Sequential(tiny()[0], nn.ReLU(), tiny()[2])
        before = snapshot(model)
        with pytest.raises(ChitaError, match=naming("finite")) as found:
            chita.prune(model, [(inputs, labels)], sparsity=0.5, method="magnitude", recover=True,
                        budget="20 steps", progress=False)  # fmt: skip
        named += f"sample {place} of batch 0" in str(found.value)
        assert same(snapshot(model), before)
    assert named > 0.7 * len(PLACES)  # an error about held-out samples may come first


def spoilt(model: nn.Module, name: str = "2.bias") -> Any:
    """A copy of a model with one parameter of NaN."""
    broken = copy.deepcopy(model)
    nn.init.constant_(broken.get_parameter(name), math.nan)
    return broken


@pytest.mark.parametrize(
    ("name", "message"),
    [("2.weight", naming("2.weight", "model")), ("2.bias", naming("model", "finite", "sample 0"))],
)
def test_a_model_that_is_not_finite(name: str, message: str) -> None:
    """Weights are checked first; other parameters show in the outputs."""
    dense = tiny()
    for how in ({"teacher": dense}, {"loss": "cross_entropy"}):
        with pytest.raises(ChitaError, match=message):
            recover(spoilt(halved(dense), name), [points(80)], **how)


def test_a_teacher_that_is_not_finite() -> None:
    dense = tiny()
    model = halved(dense)
    before = snapshot(model)
    with pytest.raises(ChitaError, match=naming("teacher", "finite", "dense network")):
        recover(model, [points(80)], teacher=spoilt(dense))
    assert same(snapshot(model), before)


def test_a_loss_that_becomes_nan() -> None:
    """The samples, the model and the outputs are as finite as before."""
    calls = 0

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return functional.cross_entropy(outputs, targets) * (math.nan if calls > 60 else 1.0)

    model = halved(tiny())
    before = snapshot(model)
    with pytest.raises(ChitaError, match=naming("loss", "finite", without="teacher")):
        recover(model, [points(80)], loss=loss, budget="90 steps")
    assert same(snapshot(model), before)


def test_targets_that_are_not_finite() -> None:
    inputs = points(80)[0]
    targets = inputs[:, :3].clone()
    targets[7, 1] = math.inf
    with pytest.raises(ChitaError, match=naming("sample 7", "targets", "finite")):
        recover(halved(tiny()), (inputs, targets), loss="mse")


def test_a_training_that_diverges_is_undone_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The gradients become NaN in the middle of the training: the samples are not the cause."""
    steps = 0

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal steps
        steps += torch.is_grad_enabled()
        broken = torch.is_grad_enabled() and steps > 150
        return functional.cross_entropy(outputs, targets) * (math.nan if broken else 1.0)

    model = halved(tiny())
    before = snapshot(model)
    result = recover(model, [points(80)], loss=loss, budget="200 steps")
    assert not result.kept and same(snapshot(model), before)
    assert says(caplog.text, "undone", "NaN", "gradients")


def test_samples_that_are_finite_are_not_to_blame() -> None:
    """A model whose loss is never finite in training, but finite in evaluation."""
    model = halved(normalised())

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.square().mean() * (math.nan if torch.is_grad_enabled() else 1.0)

    with pytest.raises(ChitaError, match=naming("finite", without="sample")):
        chita.recover(model, [points(80)], loss=loss, budget="20 steps", progress=False)
