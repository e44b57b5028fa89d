"""GradualPruner as a guest: mixed precision, averages, compiled models and others' habits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from chita.gradual import GradualPruner, cosine_restarts, polynomial
from chita.model.weights import Weights
from tests.gradual.loops import (
    CALIBRATION,
    OPTIMIZERS,
    PRUNABLE,
    assert_sparse,
    images,
    network,
    train,
)
from tests.support.pruning import same


def sgd(model: nn.Module) -> Optimizer:
    return OPTIMIZERS["sgd"](model.parameters())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_scaled_gradients_and_skipped_steps(name: str) -> None:
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    pruner = GradualPruner(model, optimizer, [0.9], **CALIBRATION)
    train(model, optimizer)
    pruner.step(images())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    moved = []
    for overflow, (x, t) in zip([1, math.inf, math.inf, 1, math.inf, 1], images(), strict=True):
        before = Weights(model).vector()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(model(x), t)
        scaler.scale(overflow * loss).backward()
        scaler.step(optimizer)
        scaler.update()
        moved.append(not torch.equal(Weights(model).vector(), before))
        assert_sparse(pruner, model, 0.9)
    assert moved == [True, False, False, True, False, True]
    assert scaler.get_scale() == 128.0


def test_accumulated_gradients_outlast_a_pruning_step() -> None:
    model = network()
    optimizer = sgd(model)
    pruner = GradualPruner(model, optimizer, [0.5, 0.8], **CALIBRATION)
    pruner.step(images())
    model.zero_grad()
    for number, (x, t) in enumerate(images(), start=1):
        functional.cross_entropy(model(x), t).backward()
        if number == 2:  # in the middle of what makes up one step
            gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
            pruner.step(images())
            assert all(torch.equal(p.grad, gradients[n]) for n, p in model.named_parameters())
        if number % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
            assert_sparse(pruner, model, 0.8)


def test_an_average_of_the_weights_is_masked_on_demand() -> None:
    model = network()
    optimizer = sgd(model)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    pruner = GradualPruner(model, optimizer, [0.9], **CALIBRATION)
    train(model, optimizer, lambda: average.update_parameters(model))
    pruner.step(images())
    train(model, optimizer, lambda: average.update_parameters(model))
    assert int((Weights(average.module).vector() == 0).sum()) == 0  # it remembers dense weights
    dense = Weights(average.module).vector()
    pruner.apply_to(average)
    assert_sparse(pruner, average.module, 0.9)
    kept = torch.cat([mask.flatten() for mask in pruner.masks.values()])
    assert torch.equal(Weights(average.module).vector()[kept], dense[kept])
    train(model, optimizer, lambda: average.update_parameters(model))
    assert_sparse(pruner, average.module, 0.9)  # from then on it averages zeros


@pytest.mark.slow
@pytest.mark.parametrize("wrap", ["whole", "in place"])
def test_compiled_models(wrap: str) -> None:
    def trained(wrapped: Callable[[nn.Module], nn.Module]) -> tuple[nn.Module, dict[str, Any]]:
        bare = network()
        bare.get_submodule("drop").p = 0.0
        model = wrapped(bare)
        optimizer = sgd(model)
        pruner = GradualPruner(model, optimizer, [0.5, 0.9], **CALIBRATION)
        for sparsity in (0.5, 0.9):
            pruner.step(images())
            train(model, optimizer, lambda: assert_sparse(pruner, bare, sparsity))  # noqa: B023
        return bare, pruner.state_dict()

    def compiled(model: nn.Module) -> nn.Module:
        if wrap == "whole":
            whole: Any = torch.compile(model, backend="eager")
            return whole  # type: ignore[no-any-return]
        model.compile(backend="eager")
        return model

    plain, plain_state = trained(lambda model: model)
    other, state = trained(compiled)
    torch.testing.assert_close(Weights(other).vector(), Weights(plain).vector())
    assert list(state["masks"]) == list(plain_state["masks"])


def test_learning_rate_schedulers() -> None:
    model, schedule = network(), polynomial(0.9, steps=3, every=2)
    optimizer = SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=1e-2)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: cosine_restarts(step / 6, schedule, 8)
    )
    pruner = GradualPruner(model, optimizer, schedule, **CALIBRATION)
    rates = []
    for epoch in range(8):
        pruner.begin_epoch(epoch, images())
        rates.append(optimizer.param_groups[0]["lr"])
        train(model, optimizer, rate.step)
        assert_sparse(pruner, model, schedule.sparsities[min(epoch // 2, 2)])
    assert rates[0] == rates[2] == rates[4] == pytest.approx(0.1)
    assert rates[1] == rates[3] == rates[6] == pytest.approx(0.050005)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-5)


def test_a_scheduler_of_momentum_too() -> None:
    model = network()
    optimizer = sgd(model)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=20)
    pruner = GradualPruner(model, optimizer, [0.9], **CALIBRATION)
    pruner.step(images())
    train(model, optimizer, scheduler.step)
    assert_sparse(pruner, model, 0.9)


def test_modes_batch_norm_and_frozen_parameters_stay() -> None:
    model = network().train()
    frozen = model.get_submodule("conv2")
    frozen.eval().requires_grad_(False)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    pruner = GradualPruner(model, optimizer, [0.8], **CALIBRATION)
    train(model, optimizer)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    pruner.step(images())
    assert same(dict(model.named_buffers()), buffers)
    for name, module in model.named_modules():
        assert module.training == (name != "conv2")
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    pruned = frozen.get_parameter("weight").clone()
    train(model, optimizer)
    assert torch.equal(frozen.get_parameter("weight"), pruned)
    assert bool((pruned == 0).any())
    assert_sparse(pruner, model, 0.8)


def test_tied_weights_count_once_and_stay_tied() -> None:
    model = network()
    optimizer = sgd(model)
    pruner = GradualPruner(model, optimizer, [0.9], "magnitude")
    pruner.step(())
    train(model, optimizer)
    assert "second.weight" not in pruner.masks
    assert sum(mask.numel() for mask in pruner.masks.values()) == PRUNABLE
    first, second = (model.get_submodule(name) for name in ("first", "second"))
    assert first.weight is second.weight
    assert torch.equal(first.weight != 0, pruner.masks["first.weight"])
