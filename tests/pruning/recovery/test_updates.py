"""Updates relative to the scale of a channel: what moves, by how much, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from chita.pruning.recovery.updates import Masks, RelativeAdam, rate_at, relative_scales
from tests.support.pruning import cut, points, seeded, tiny

RATE = 0.01


def masked(model: nn.Module, share: float = 0.2) -> Masks:
    """Prune some weights of each matrix, and return the masks."""
    draw, masks = torch.Generator().manual_seed(0), {}
    for parameter in model.parameters():
        if parameter.ndim > 1:
            kept = torch.rand(parameter.shape, generator=draw) >= share
            masks[parameter] = kept
            parameter.data.mul_(kept)
    return masks


def step(updates: RelativeAdam, rate: float) -> None:
    updates.begin_step(rate)
    updates.apply()


def train(model: nn.Module, masks: Masks | None = None, steps: int = 5, rate: float = RATE) -> None:
    parameters = list(model.parameters())
    updates = RelativeAdam(relative_scales(model, parameters, masks or {}))
    for number in range(steps):
        inputs, targets = cut(points(8 * steps), 8)[number]
        model.zero_grad()
        F.cross_entropy(model(inputs.to(parameters[0].dtype)), targets).backward()  # type: ignore[no-untyped-call]
        step(updates, rate)


def values(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_pruned_weights_stay_zero_and_all_others_move(dtype: torch.dtype) -> None:
    model = tiny().to(dtype)
    masks = masked(model)
    assert any(bool(torch.signbit(p[~kept]).any()) for p, kept in masks.items())  # -0.0 among them
    before = values(model)
    train(model, masks, rate=0.03)
    for parameter, start in zip(model.parameters(), before, strict=True):
        kept = masks.get(parameter, torch.ones_like(parameter, dtype=torch.bool))
        assert not bool(parameter[~kept].any())
        assert bool((parameter != start)[kept].all())


@given(st.floats(-12, 12))
@settings(max_examples=20, deadline=None)
def test_a_rescaled_channel_moves_by_the_same_share(exponent: float) -> None:
    """The network computes the same function before; with ReLU, a positive scale commutes."""
    scale = 2.0 ** round(exponent)
    one, other = relu(), relu()
    with torch.no_grad():
        for tensor in (other[0].weight, other[0].bias):
            tensor[3] *= scale
        other[2].weight[:, 3] /= scale
    masks = [masked(model) for model in (one, other)]
    train(one, masks[0], steps=1)
    train(other, masks[1], steps=1)
    torch.testing.assert_close(other[0].weight[3], scale * one[0].weight[3])
    torch.testing.assert_close(other[0].bias[3], scale * one[0].bias[3])
    rest = torch.arange(8) != 3
    torch.testing.assert_close(other[0].weight[rest], one[0].weight[rest])
    torch.testing.assert_close(other[0].bias[rest], one[0].bias[rest])


def relu() -> Any:
    model: Any = tiny()
    model[1] = nn.ReLU()
    return model


def test_whole_layers_of_other_scales_learn_the_same_function() -> None:
    one, other = relu(), relu()
    with torch.no_grad():
        for tensor, scale in (
            (other[0].weight, 1e4),
            (other[0].bias, 1e4),
            (other[2].weight, 1e-4),
        ):
            tensor *= scale
    one[2].bias, other[2].bias = None, None
    for model in (one, other):
        train(model)
    torch.testing.assert_close(other(points(9)[0]), one(points(9)[0]))


@pytest.mark.parametrize(
    ("layer", "dimension"),
    [
        (lambda: nn.Linear(6, 4), 0),
        (lambda: nn.Conv2d(6, 4, 3, groups=2), 0),
        (lambda: nn.ConvTranspose2d(6, 4, 3), 1),
        (lambda: nn.ConvTranspose2d(4, 4, 3), 1),
    ],
)
def test_the_scale_is_that_of_the_output_channel(layer: Any, dimension: int) -> None:
    model: Any = seeded(layer)
    weight, bias = model.weight, model.bias
    shape = [1] * weight.ndim
    shape[dimension] = 4
    sizes = torch.tensor([1e-3, 1.0, 10.0, 1e3])
    with torch.no_grad():
        weight.mul_(sizes.view(shape) / weight.abs().mean())
        bias.zero_()
    kept = torch.rand(weight.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    scales = relative_scales(model, [weight, bias], {weight: kept})
    for channel in range(4):
        own = weight.detach().select(dimension, channel)
        chosen = kept.select(dimension, channel)
        truth = own[chosen].square().mean().sqrt()
        found = scales[weight].select(dimension, channel)
        torch.testing.assert_close(found, truth * chosen)
        torch.testing.assert_close(scales[bias][channel], truth)


def test_the_first_step_is_the_rate_times_the_scale() -> None:
    """Adam's first step has the size of the rate, whatever the gradient."""
    model: Any = tiny()
    before = values(model)
    scales = relative_scales(model, list(model.parameters()), {})
    train(model, steps=1)
    for parameter, start in zip(model.parameters(), before, strict=True):
        moved = (parameter.detach() - start).abs()
        torch.testing.assert_close(moved, RATE * scales[parameter])


def test_a_bfloat16_model_moves_by_steps_below_its_rounding() -> None:
    """A step of 0.1 % is less than half of bfloat16's spacing of 0.8 %."""
    model: Any = nn.Sequential(nn.Linear(6, 3)).to(torch.bfloat16)
    with torch.no_grad():
        model[0].weight.fill_(1.0)
    start = model[0].weight.detach().clone()
    updates = RelativeAdam(relative_scales(model, list(model.parameters()), {}))
    for number in range(20):
        model[0].weight.grad = torch.ones_like(start)
        step(updates, 0.001)
        if number == 0:
            assert torch.equal(model[0].weight, start)
    torch.testing.assert_close(model[0].weight.float(), start.float() - 0.02, rtol=0, atol=0.004)


def test_zero_biases_and_zero_layers_move() -> None:
    model: Any = tiny()
    with torch.no_grad():
        model[0].bias.zero_()
        model[2].weight.zero_()
        model[2].bias.zero_()
    train(model, steps=2)
    assert bool(model[0].bias.all())
    assert bool(model[2].weight.all()) and bool(model[2].bias.all())


def test_parameters_without_gradients_stay() -> None:
    model: Any = tiny()
    before = values(model)
    updates = RelativeAdam(relative_scales(model, list(model.parameters()), {}))
    model[0].bias.grad = torch.ones_like(model[0].bias)
    step(updates, 0.1)
    moved = [not torch.equal(a, b) for a, b in zip(values(model), before, strict=True)]
    assert moved == [False, True, False, False]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_restarted_training_equals_a_new_one(dtype: torch.dtype) -> None:
    models: list[Any] = [tiny().to(dtype), tiny().to(dtype)]
    updates = [RelativeAdam(relative_scales(m, list(m.parameters()), {})) for m in models]

    def train_with(model: nn.Module, used: RelativeAdam) -> None:
        for inputs, targets in cut(points(24), 8):
            model.zero_grad()
            loss = F.cross_entropy(model(inputs.to(dtype)), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            step(used, RATE)

    for model, first in zip(models, updates, strict=True):
        train_with(model, first)
    masks = [masked(model) for model in models]
    scales = [
        relative_scales(model, list(model.parameters()), mask)
        for model, mask in zip(models, masks, strict=True)
    ]
    updates[0].restart(scales[0])
    train_with(models[0], updates[0])
    train_with(models[1], RelativeAdam(scales[1]))
    for one, other in zip(values(models[0]), values(models[1]), strict=True):
        assert torch.equal(one, other)


@given(st.integers(1, 3000))
@settings(max_examples=60, deadline=None)
def test_the_rate_rises_and_falls_to_about_zero(steps: int) -> None:
    rates = [rate_at(step, steps) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert top <= 0.05 * steps + 1
    if steps >= 20:
        assert rates[-1] <= 0.02
        assert max(rates) > 0.9
