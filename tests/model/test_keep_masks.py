"""Zeros that stay zero in a training loop of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.parametrizations import weight_norm
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer, RMSprop

import chita
from chita.model.keep_masks import keep_masks
from chita.model.masks import apply_masks, masks_of
from tests.support.gloo import on_ranks
from tests.support.keeping import pruned, train
from tests.support.pruning import points, same, seeded, snapshot, tiny

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2, foreach=False),
    "sgd-foreach": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, foreach=True),
    "sgd-fused": lambda p: SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: Adam(p, lr=0.01, weight_decay=1e-2, amsgrad=True),
    "adamw-fused": lambda p: AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
    "rmsprop": lambda p: RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "lbfgs": lambda p: LBFGS(p, max_iter=3),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_zeros_stay_after_every_step(make: Callable[[Any], Optimizer]) -> None:
    """Averages from before count for nothing: the optimizer has trained the dense network."""
    model = tiny()
    optimizer = make(model.parameters())
    train(model, optimizer)
    chita.prune(model, [], sparsity=0.75, method="magnitude", progress=False)
    before = snapshot(model)
    with keep_masks(model, optimizer):
        assert train(model, optimizer) == [True] * 3
    after = snapshot(model)
    assert sum(int((after[name] == 0).sum()) for name in masks_of(model)) == 54
    for name, mask in masks_of(model).items():
        assert not torch.signbit(after[name][~mask]).any()  # packed files would store -0.0
        assert bool((before[name] != after[name])[mask].all())
    assert train(model, optimizer) == [False] * 3  # the hook is gone


def test_the_other_weights_move_as_without_the_hook() -> None:
    """The steps of elementwise optimizers are the same where a weight is kept."""
    one, other = pruned(), pruned()
    masks = masks_of(one)
    optimizers = [OPTIMIZERS["adam"](model.parameters()) for model in (one, other)]
    with keep_masks(one, optimizers[0]):
        train(one, optimizers[0])
    for _ in range(3):
        train(other, optimizers[1], steps=1)
        apply_masks(other, masks)
    assert same(snapshot(one), snapshot(other))


def test_groups_and_several_optimizers() -> None:
    model = pruned()
    weights = [p for p in model.parameters() if p.ndim == 2]
    groups = [{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.2}]
    matrices = SGD(groups, momentum=0.9)
    biases = Adam([p for p in model.parameters() if p.ndim == 1])
    with keep_masks(model, matrices, biases):
        assert train(model, matrices, biases) == [True] * 3


def test_a_scaler_that_skips_steps() -> None:
    model = pruned().float()
    optimizer = OPTIMIZERS["adamw-fused"](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    inputs, labels = points(24)
    masks = masks_of(model)
    with keep_masks(model, optimizer):
        for factor in (1.0, float("inf"), 1.0):
            before = snapshot(model)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = functional.cross_entropy(model(inputs.float()), labels)
            scaler.scale(factor * loss).backward()
            scaler.step(optimizer)
            scaler.update()
            assert same(masks_of(model), masks)
            assert same(snapshot(model), before) == (factor > 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_low_precision(dtype: torch.dtype) -> None:
    model = pruned().to(dtype)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    with keep_masks(model, optimizer):
        assert train(model, optimizer) == [True] * 3


def test_a_model_that_changes_its_type_within() -> None:
    model = pruned()
    optimizer = SGD(model.parameters(), lr=0.1)
    with keep_masks(model, optimizer):
        assert train(model, optimizer) == [True] * 3
        model.float()
        assert train(model, optimizer) == [True] * 3


class Codes(Optimizer):
    """An optimizer that stores codes of 8 bits and numbers of 16, as those for large models do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        with torch.enable_grad():
            closure()
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["codes"] = torch.full(parameter.shape, 7, dtype=torch.uint8)
            state["mean"] = torch.ones_like(parameter, dtype=torch.bfloat16)
            parameter.sub_(parameter.grad, alpha=0.1)


def test_averages_of_other_types() -> None:
    model = pruned()
    optimizer = Codes(model.parameters())
    with keep_masks(model, optimizer):
        assert train(model, optimizer) == [True] * 3
    state = optimizer.state[model[0].weight]
    assert bool((state["codes"] == 7).all())
    assert torch.equal(state["mean"] != 0, masks_of(model)["0.weight"])


def test_given_masks_are_applied_at_once_and_win_over_zeros() -> None:
    model = tiny()
    masks = {"0.weight": torch.rand(8, 6) > 0.5}
    optimizer = SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.get_parameter("2.weight")[0, 0] = 0.0
    with keep_masks(model, optimizer, masks=masks):
        assert same(masks_of(model, include="0.weight"), masks)
        train(model, optimizer)
    assert same(masks_of(model), masks)  # 2.weight has no zeros any more
    with keep_masks(model, optimizer, masks={}):  # nothing to keep, which is what was asked for
        assert train(model, optimizer) == [False] * 3


@pytest.mark.slow
@pytest.mark.parametrize("step", ["model", "model and step"])
def test_compiled(step: str) -> None:
    model: Any = torch.compile(pruned(), backend="eager")
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    if step == "model and step":
        optimizer.step = torch.compile(optimizer.step, backend="eager")  # type: ignore[method-assign]
    with keep_masks(model, optimizer):
        assert train(model, optimizer) == [True] * 3
    assert list(masks_of(model)) == ["0.weight", "2.weight"]
    assert train(model, optimizer) == [False] * 3


def test_tied_weights_as_one_object_or_on_one_memory() -> None:
    class Twice(nn.Module):
        def __init__(self, share: Callable[[nn.Parameter], nn.Parameter]) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
            self.second.weight = share(self.first.weight)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.second(self.first(x).tanh())
            return y

    for share in (lambda p: p, lambda p: nn.Parameter(p.detach())):
        model = seeded(lambda share=share: Twice(share))  # type: ignore[misc]
        chita.prune(model, [], sparsity=0.75, method="magnitude", progress=False)
        optimizer = Adam(model.parameters(), lr=0.1)
        with keep_masks(model, optimizer):
            assert train(model, optimizer) == [True] * 3
        first, second = (model.get_parameter(f"{name}.weight") for name in ("first", "second"))
        assert torch.equal(first, second) and int((first == 0).sum()) == 27


def test_a_weight_norm_keeps_zeros_through_its_direction() -> None:
    """The weight is a direction times a length, and zero where the direction is."""
    model = tiny()
    weight_norm(model[0])
    result = chita.prune(
        model, [], sparsity=0.5, method="magnitude", include=["*.original1", "2.weight"],
        progress=False,
    )  # fmt: skip
    optimizer = Adam(model.parameters(), lr=0.1)
    before = model[0].weight.detach()
    with keep_masks(model, optimizer, masks=result.masks):
        train(model, optimizer)
    after = model[0].weight.detach()
    assert torch.equal(after == 0, before == 0) and bool((before == 0).any())
    assert not torch.equal(after, before)


def test_weight_norm_on_a_pruned_layer() -> None:
    """The default reads the zeros of the other layers; those of this one go by include."""
    model = pruned()
    weight_norm(model[0])
    assert list(masks_of(model)) == ["2.weight"]
    masks = masks_of(model, include=["*.original1", "2.weight"])
    optimizer = Adam(model.parameters(), lr=0.1)
    with keep_masks(model, optimizer, masks=masks):
        train(model, optimizer)
    assert int((model[0].weight == 0).sum()) == int((~masks[next(iter(masks))]).sum()) > 0


def _on_a_rank(rank: int) -> list[bool]:
    model = pruned()
    parallel = DistributedDataParallel(model)
    optimizer = Adam(parallel.parameters(), lr=0.1)
    with keep_masks(parallel, optimizer):
        return train(parallel, optimizer)


@pytest.mark.slow
def test_distributed_data_parallel() -> None:
    assert on_ranks(2, _on_a_rank) == [[True] * 3] * 2
