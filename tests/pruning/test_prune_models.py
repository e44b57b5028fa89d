"""Models and data of other kinds than pairs for a float64 multilayer perceptron."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import chita
from chita import PruneResult
from chita.model.weights import Weights
from tests.curvature.truth import brute_force
from tests.support.messages import says
from tests.support.pruning import Again, cut, numbers, points, seeded, tiny


def prune(model: nn.Module, batches: Any, **keywords: Any) -> PruneResult:
    defaults = {"sparsity": 0.75, "batch": 2, "ridge": 0.01, "progress": False, "stages": 3}
    return chita.prune(
        model, batches, **{"method": "chita++", **defaults, **keywords}, recover=False
    )


def single_stage(model: nn.Module, pair: tuple[Tensor, Tensor], **keywords: Any) -> PruneResult:
    """The first-order term is left out, and magnitude chooses the support."""
    fixed = {"method": "chita-bso", "stages": 1, "iterations": 0, "first_order": False}
    return prune(model, Again([pair]), **fixed, **keywords)


def truth(model: nn.Module, pair: tuple[Tensor, Tensor], k: int, **keywords: Any) -> Tensor:
    """What `single_stage` must give, from plain gradients."""
    weights = Weights(model, include=keywords.pop("include", None))
    A, _ = brute_force(model, weights, *pair, 2, **keywords)
    start = weights.vector().to(torch.promote_types(weights.dtype, torch.float32))
    w: Tensor = chita.solve(A, start, k, lam=0.01, iterations=0).w
    return w


class OwnLoss(nn.Module):
    """Takes a dict and gives an object with a loss, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny()

    def forward(self, features: Tensor, labels: Tensor, scale: float = 1.0) -> SimpleNamespace:
        logits = self.network(features)
        return SimpleNamespace(loss=scale * functional.cross_entropy(logits, labels))


@pytest.mark.parametrize("ridge", [0.01, "auto"])
def test_dicts_with_the_models_own_loss(ridge: Any) -> None:
    model, network = OwnLoss(), tiny()
    dicts = [{"features": x, "labels": t, "scale": 1.0} for x, t in cut(points(30), 5)]
    result = prune(model, dicts, ridge=ridge)
    prune(network, cut(points(30), 5), ridge=ridge)
    assert list(result.masks) == ["network.0.weight", "network.2.weight"]
    torch.testing.assert_close(Weights(model).vector(), Weights(network).vector())


def test_a_loss_of_ones_own() -> None:
    def squares(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean()

    model, pair = tiny(), (numbers(24, 6), numbers(24, 3, seed=1))
    expected = truth(model, pair, 18, loss=squares)
    dense = squares(model(pair[0]), pair[1]).item()
    result = single_stage(model, pair, loss=squares)
    torch.testing.assert_close(Weights(model).vector(), expected)
    assert result.stages[0].loss == pytest.approx(dense)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_weights_keep_their_type(dtype: torch.dtype) -> None:
    model = tiny().to(dtype)
    x, t = points(24)
    pair = x.to(dtype), t
    expected = truth(model, pair, 18)
    assert expected.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    result = single_stage(model, pair)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    found = Weights(model).vector()
    assert torch.equal(found != 0, expected != 0)
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(found, expected.to(dtype), rtol=tolerance, atol=tolerance / 10)
    assert result.nonzeros == 18


class Residual(nn.Module):
    """A small residual network with batch norm, a strided shortcut and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(6)
        self.shortcut = nn.Conv2d(4, 6, 1, stride=2)
        self.fc = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.bn1(self.conv1(images)).relu()
        hidden = (self.bn2(self.conv2(hidden)) + self.shortcut(hidden)).relu()
        logits: Tensor = self.fc(hidden.mean((2, 3)))
        return logits


def test_convolutions_with_batch_norm() -> None:
    model = seeded(Residual).double()
    pair = numbers(24, 1, 8, 8), points(24)[1]
    model(pair[0])  # statistics other than the initial ones
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    expected = truth(model.eval(), pair, 73)
    # The truth is the problem as stated, with the channel that no sample passes.
    result = single_stage(model.train(), pair, drop_dead=False)
    torch.testing.assert_close(Weights(model).vector(), expected)
    assert list(result.masks) == ["conv1.weight", "conv2.weight", "shortcut.weight", "fc.weight"]
    assert result.weights == 36 + 216 + 24 + 18
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert all(module.training for module in model.modules())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.second(self.first(x).tanh()).tanh())
        return logits


def test_tied_weights_count_once_and_stay_tied() -> None:
    model = seeded(Tied).double()
    expected = truth(model, points(24), 13)
    result = single_stage(model, points(24))
    assert list(result.masks) == ["first.weight", "last.weight"]
    assert (result.weights, result.nonzeros) == (54, 13)
    assert model.get_submodule("first").weight is model.get_submodule("second").weight
    torch.testing.assert_close(Weights(model).vector(), expected)


def test_patterns_say_what_is_pruned() -> None:
    model, dense = tiny(), tiny()
    result = prune(model, cut(points(24), 8), exclude="2.*")
    assert list(result.masks) == ["0.weight"]
    assert (result.weights, result.nonzeros) == (48, 12)
    assert torch.equal(model[2].weight, dense[2].weight)
    result = prune(model, cut(points(24), 8), include=["2.weight", "*.bias"], exclude=["0.*"])
    assert list(result.masks) == ["2.weight", "2.bias"]
    assert (result.weights, result.nonzeros) == (27, 6)


def test_frozen_weights_are_pruned_too() -> None:
    model, trainable = tiny().requires_grad_(False), tiny()
    prune(model, cut(points(24), 8))
    prune(trainable, cut(points(24), 8))
    assert torch.equal(Weights(model).vector(), Weights(trainable).vector())
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_whatever_mode_the_caller_is_in(context: Any) -> None:
    model, other, batches = tiny(), tiny(), cut(points(24), 8)
    with context():
        prune(model, batches, ridge="auto")
    prune(other, batches, ridge="auto")
    assert torch.equal(Weights(model).vector(), Weights(other).vector())
    assert not model[0].weight.is_inference()


def test_a_shuffling_data_loader() -> None:
    vectors = []
    for seed in (0, 0, 1):
        generator = torch.Generator().manual_seed(seed)
        loader = DataLoader(TensorDataset(*points(40)), 7, shuffle=True, generator=generator)
        model = tiny()
        result = prune(model, loader, ridge="auto", samples=10)
        assert (result.nonzeros, result.samples) == (18, 10)
        vectors.append(Weights(model).vector())
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


def test_sparsity_so_high_that_nothing_is_left(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny()
    result = prune(model, cut(points(24), 8), sparsity=0.999, ridge="auto", block_size=10)
    assert result.nonzeros == 0
    assert says(caplog.text, "sparsity=0.999", 72)
    assert not any(bool(mask.any()) for mask in result.masks.values())
    assert model(points(2)[0]).isfinite().all()


class LastStep(nn.Module):
    """An LSTM over sequences of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 6, batch_first=True)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.lstm(x)[0][:, -1])
        return out


def test_batches_of_different_lengths() -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(8, length, 3, generator=generator), torch.arange(8) % 4)
        for length in (2, 3, 4, 5, 6)
    ]
    model = LastStep()
    result = chita.prune(
        model, batches, sparsity=0.5, stages=2, batch=4, progress=False, recover=False
    )
    assert result.nonzeros == 12
