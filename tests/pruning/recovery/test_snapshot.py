"""A snapshot restores every bit of a model, and other tensors are stored by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from chita.model.weights import Weights
from chita.pruning.recovery.snapshot import Snapshot, load_tensors, other_tensors
from tests.support.pruning import same, seeded, snapshot


def network() -> Any:
    """Batch norm, a frozen parameter, and a weight that two layers share."""
    model: Any = seeded(
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 2))
    )
    model[2].weight = model[0].weight
    model[3].bias.requires_grad_(False)
    return model


def change(model: nn.Module) -> None:
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.add_(1)


def test_restoring_gives_every_bit_back_in_place() -> None:
    model = network()
    model[1].running_mean[0] = torch.nan
    model[0].weight.data[0, 0] = -0.0
    before, tensors = snapshot(model), list(model.state_dict(keep_vars=True).values())
    taken = Snapshot(model)
    for _ in range(2):
        change(model)
        assert not same(snapshot(model), before)
        taken.restore()
        assert same(snapshot(model), before)
    assert torch.signbit(model[0].weight[0, 0])
    now = model.state_dict(keep_vars=True).values()
    assert all(a is b for a, b in zip(tensors, now, strict=True))
    assert [p.requires_grad for p in model.parameters()] == [True] * 6 + [False]
    assert all(p.grad_fn is None for p in model.parameters())


def test_a_snapshot_can_be_restored_under_inference_mode() -> None:
    model = network()
    before = snapshot(model)
    with torch.inference_mode():
        taken = Snapshot(model)
        change(model)
        taken.restore()
    assert same(snapshot(model), before)


def test_other_tensors_and_weights_are_the_whole_model() -> None:
    model, other = network(), network()
    change(model)
    weights = Weights(model)
    stored = other_tensors(model, weights)
    assert {"1.running_mean", "1.num_batches_tracked", "3.bias", "0.bias"} <= stored.keys()
    assert not {"0.weight", "2.weight", "3.weight"} & stored.keys()
    load_tensors(other, stored)
    assert not same(snapshot(other), snapshot(model))
    Weights(other).assign(weights.vector())
    assert same(snapshot(other), snapshot(model))
    change(model)  # the stored tensors are copies
    assert not torch.equal(stored["0.bias"], model[0].bias)
