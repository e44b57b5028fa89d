"""gradient_matrix and the user: errors, and a model that is left as it was."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.fisher import gradient_matrix
from chita.errors import ChitaError
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.matrix.in_memory import Demand, HeldTarget, Target
from chita.solver.matrix.recomputed import WindowTarget
from tests.curvature.truth import Messages, brute_force, labels, normal
from tests.support.messages import naming


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3)).double()


def take(
    model: nn.Module, x: Tensor, t: Any, *, rows: int = 4, batch: int = 1, loss: Any = None
) -> Tensor:
    stream = SampleStream([(x, t)])
    found = gradient_matrix(model, Weights(model), stream, rows=rows, batch=batch, loss=loss)
    return found.matrix.whole().t()


def state_of(model: nn.Module) -> list[object]:
    return [
        [module.training for module in model.modules()],
        [parameter.requires_grad for parameter in model.parameters()],
        [parameter.grad for parameter in model.parameters()],
        [len(module._forward_hooks) for module in model.modules()],
        [parameter.detach().clone().tolist() for parameter in model.parameters()],
    ]


def failing_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    raise KeyError("a loss that fails")


@pytest.mark.parametrize("loss", [None, failing_loss])
def test_the_model_is_left_as_it_was(loss: Any) -> None:
    model = small().train()
    model[0].eval()
    model[3].weight.requires_grad_(False)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = state_of(model)
    if loss is None:
        take(model, normal(4, 4), labels(4))
    else:
        with pytest.raises(
            ChitaError, match=naming("loss", "(1, 3)", "KeyError: 'a loss that fails'")
        ):
            take(model, normal(4, 4), labels(4), loss=loss)
    assert state_of(model) == before


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_frozen_weights_and_any_mode_of_the_caller(context: Any) -> None:
    model, x, t = small(), normal(6, 4), labels(6)
    truth, _ = brute_force(model.eval(), Weights(model), x, t, 2)
    model.requires_grad_(False)
    with context(), Messages() as messages:
        found = take(model, x, t, rows=3, batch=2)
    assert messages.texts == []
    torch.testing.assert_close(found, truth)


@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor


class Own(nn.Module):
    """Gives its own loss, as Hugging Face's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3).double()

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Output:
        logits = self.fc(features)
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return Output(loss, logits)


def test_dicts_use_the_models_own_loss() -> None:
    model, x, t = Own(), normal(8, 4), labels(8)
    weights = Weights(model)
    stream = SampleStream([{"features": x, "labels": t}])
    found = gradient_matrix(model, weights, stream, rows=4, batch=2)
    truth, losses = brute_force(model.fc, weights, x, t, 2)
    torch.testing.assert_close(found.matrix.whole().t(), truth)
    assert found.loss == pytest.approx(losses.mean().item())


def test_dicts_without_a_loss() -> None:
    model = Own()
    stream = SampleStream([{"features": normal(8, 4)}])
    with pytest.raises(ChitaError, match=naming(".loss", "features", "labels", "loss='distill'")):
        gradient_matrix(model, Weights(model), stream, rows=4, batch=2)
    stream = SampleStream([{"features": normal(8, 4), "labels": labels(8)}])
    with pytest.raises(ChitaError, match=naming("loss=", "(inputs, targets)", ".loss")):
        gradient_matrix(
            model, Weights(model), stream, rows=4, batch=2, loss=functional.cross_entropy
        )


def test_too_few_samples() -> None:
    with pytest.raises(ChitaError, match=naming("rows", 4, 3, 12, 11)):
        take(small(), normal(11, 4), labels(11), rows=4, batch=3)
    with pytest.raises(ChitaError, match=naming("rows=0")):
        take(small(), normal(11, 4), labels(11), rows=0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda o, t: functional.cross_entropy(o, t, reduction="none"),
            naming("loss", "scalar", "(1,)"),
        ),
        (lambda o, t: 1.0, naming("loss", "scalar", "float")),
        (lambda o, t: functional.cross_entropy(o.detach(), t), naming("loss", "prunable")),
    ],
)
def test_losses_that_are_none(loss: Any, message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        take(small(), normal(4, 4), labels(4), loss=loss)


def test_cross_entropy_that_does_not_fit() -> None:
    with pytest.raises(ChitaError, match=naming("(1, 3)", "(1, 7)", "loss=")):
        take(small(), normal(4, 4), normal(4, 7))


@pytest.mark.parametrize("bad_row", [0, 1, 5])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite(bad_row: int, value: float) -> None:
    x = normal(12, 4)
    x[2 * bad_row + 1] = value  # in every feature, so that no ReLU can hide it
    with pytest.raises(
        ChitaError,
        match=naming("loss", f"row {bad_row}", 2 * bad_row, 2 * bad_row + 1, re.compile("nan|inf")),
    ):
        take(small(), x, labels(12), rows=6, batch=2)


@pytest.mark.parametrize("bad_row", [0, 1, 5])
def test_gradients_that_are_not_finite(bad_row: int) -> None:
    """The square root has an infinite slope at 0, where its value is finite."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().sum(1).sqrt().mean()

    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3, bias=False)).double()
    x = normal(6, 4)
    x[bad_row] = 0
    with torch.no_grad():
        model[0].bias.zero_()
    with pytest.raises(ChitaError, match=naming("0.weight", f"row {bad_row}")):
        take(model, x, labels(6), rows=6, loss=loss)


class Counted(torch.autograd.Function):
    """The identity; counts how often gradients pass through."""

    passes = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Counted.passes += 1
        return gradient


class Watched(nn.Module):
    """4-5-3, and a count of the backward passes that reach the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = Counted.apply(self.first(x))  # type: ignore[no-untyped-call]
        outputs: Tensor = self.last(hidden.tanh())
        return outputs


@pytest.mark.parametrize("width", [1, 7, 20, 26, 100])
def test_columns_are_the_same_in_windows(width: int) -> None:
    model, x, t = small().eval(), normal(12, 4), labels(12)
    weights, stream = Weights(model), SampleStream([(x, t)])
    found = gradient_matrix(
        model, weights, stream, rows=6, batch=2, store=lambda demand: WindowTarget(demand, width)
    )
    truth, losses = brute_force(model, weights, x, t, 2)
    assert found.loss == pytest.approx(losses.mean().item())
    with torch.no_grad():
        for start in range(0, weights.size, width):
            stop = min(start + width, weights.size)
            torch.testing.assert_close(found.matrix.read(start, stop).t(), truth[:, start:stop])


def test_layers_outside_a_window_cost_no_backward_pass() -> None:
    model, stream = Watched(), SampleStream([(normal(8, 4), labels(8))])
    passes: list[int] = []

    def last_layer(demand: Demand) -> Target:
        Counted.passes = 0
        return HeldTarget(demand, 20)

    def first_layer(demand: Demand) -> Target:
        Counted.passes = 0
        return HeldTarget(demand, 0, 20)

    for store in (last_layer, first_layer):
        gradient_matrix(model, Weights(model), stream, rows=8, batch=1, store=store)
        passes.append(Counted.passes)
    assert passes[0] == 0
    assert passes[1] > 0
