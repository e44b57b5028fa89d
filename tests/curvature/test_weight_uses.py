"""Which weights autograd's graph shows to be used by the calls of their modules alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.weight_uses import known_weights
from chita.model.hooks import captured, owners
from chita.model.weights import Weights
from tests.curvature.truth import normal


def known(model: nn.Module, x: Tensor) -> set[str]:
    weights = Weights(model, "*")
    with captured(owners(model, weights)) as calls:
        total = model(x).sum()
    return known_weights(total, calls, list(weights))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 4), (2, 5, 4)])
def test_linear_layers(shape: tuple[int, ...], bias: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=bias), nn.ReLU(), nn.Linear(4, 3, bias=bias))
    model.double()
    assert known(model, normal(*shape)) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
def test_convolutions_and_layers_without_a_rule(padding_mode: str) -> None:
    conv = nn.Conv2d(2, 4, 3, padding=1, padding_mode=padding_mode)
    model = nn.Sequential(conv, nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1, groups=2)).double()
    assert known(model, normal(2, 2, 5, 5)) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_a_module_that_is_called_twice() -> None:
    layer = nn.Linear(4, 4)
    assert known(nn.Sequential(layer, nn.ReLU(), layer).double(), normal(2, 4)) == {
        "0.weight", "0.bias"
    }  # fmt: skip


class Used(nn.Module):
    """Calls `inner` and uses its weight in another way."""

    def __init__(self, use: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.fc = nn.Linear(4, 4), nn.Linear(4, 3)
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.use(self.inner, x))
        return logits


@pytest.mark.parametrize(
    "use",
    [
        lambda inner, x: inner(x) + functional.linear(x, inner.weight),
        lambda inner, x: inner(x) + 1e-9 * inner.weight.sum(),
        lambda inner, x: functional.linear(x, inner.weight),
        lambda inner, x: inner(x) * inner.weight.norm(),
    ],
)
def test_a_use_outside_the_module(use: Callable[[nn.Linear, Tensor], Tensor]) -> None:
    found = known(Used(use).double(), normal(2, 4))
    assert "inner.weight" not in found and {"fc.weight", "fc.bias"} <= found


def test_a_weight_that_is_not_used_has_a_known_gradient() -> None:
    assert "inner.weight" in known(Used(lambda inner, x: x).double(), normal(2, 4))


def test_hooks_may_change_outputs_and_gradients() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)).double()
    model[0].register_forward_hook(lambda module, args, output: 2 * output)
    model[1].weight.register_hook(lambda gradient: 2 * gradient)
    assert known(model, normal(2, 4)) == {"1.bias", "2.weight", "2.bias"}


def test_a_weight_that_is_transformed_before_the_product() -> None:
    class Standardized(nn.Conv2d):
        def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return super()._conv_forward(x, weight - weight.mean(), bias)

    model = Standardized(2, 3, 3).double()
    assert known(model, normal(2, 2, 5, 5)) == {"bias"}


def test_autocast_casts_the_weight() -> None:
    model = nn.Linear(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert "weight" not in known(model, normal(2, 4).float())
