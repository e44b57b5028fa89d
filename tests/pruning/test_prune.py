"""What pruning does to a model: sparsity, weights, stages, samples and what it leaves alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.nn import functional

import chita
from chita.model.accuracy import accuracy
from chita.model.weights import Weights
from chita.pruning.config import kept_weights
from chita.pruning.schedule import sparsities
from tests.curvature.truth import brute_force
from tests.support.messages import says
from tests.support.pruning import (
    METHODS,
    Again,
    Watch,
    cut,
    digits,
    mlpnet,
    points,
    same,
    snapshot,
    tiny,
    unseen_digits,
)
from tests.support.pruning import (
    prune_quietly as prune,
)

P = 72  # weights of tiny()


@pytest.mark.slow
def test_chita_plus_plus_keeps_what_magnitude_loses() -> None:
    calibration, unseen = digits(2000), unseen_digits()
    largest, pruned = mlpnet(), mlpnet()
    dense = accuracy(largest, unseen)
    prune(largest, calibration, sparsity=0.98, method="magnitude")
    result = prune(
        pruned, calibration, sparsity=0.98, stages=8, batch=16, ridge="auto", recover=False
    )
    assert dense > 96
    assert accuracy(largest, unseen) < 40
    assert accuracy(pruned, unseen) > accuracy(largest, unseen) + 25
    assert result.nonzeros <= 647 == int(sum(mask.sum() for mask in result.masks.values()))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sparsity", [0, 0.3, 0.5, 0.9, 0.985, 0.995])
def test_exactly_k_weights_are_kept(method: str, sparsity: float) -> None:
    model = tiny()
    keys = list(model.state_dict())
    biases = [model[0].bias.detach().clone(), model[2].bias.detach().clone()]
    result = prune(model, cut(points(24), 8), sparsity=sparsity, method=method, recover=False)
    k = {0: 72, 0.3: 50, 0.5: 36, 0.9: 7, 0.985: 1, 0.995: 0}[sparsity]
    assert list(result.masks) == ["0.weight", "2.weight"]
    assert int(sum(mask.sum() for mask in result.masks.values())) == k == result.stages[-1].kept
    for name, mask in result.masks.items():
        weight = model.get_parameter(name)
        assert mask.dtype == torch.bool and mask.shape == weight.shape
        assert not bool(weight[~mask].any())
        assert bool(weight[mask].all())  # random weights: none is zero by chance
        assert not weight.isnan().any()
    assert (result.nonzeros, result.weights) == (k, P)
    assert result.sparsity == pytest.approx(1 - k / P)
    assert list(model.state_dict()) == keys
    if method != "auto":  # which repairs them
        assert torch.equal(model[0].bias, biases[0]) and torch.equal(model[2].bias, biases[1])


def test_no_sparsity_does_no_harm() -> None:
    model, (x, t) = tiny(), points(24)
    before = functional.cross_entropy(model(x), t).item()
    prune(model, [(x, t)], sparsity=0.0, recover=False)
    assert functional.cross_entropy(model(x), t).item() < before  # the first-order term


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_left_as_it_was_but_for_its_weights(method: str) -> None:
    model = tiny().train()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    model[2].weight.grad = torch.ones(3, 8, dtype=torch.float64)
    buffers = len(list(model.buffers()))
    prune(model, cut(points(24), 8), method=method, recover=False)
    assert [module.training for module in model.modules()] == [True, True, False, True]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    assert flags == [False, True, True, False]
    assert torch.equal(model[2].weight.grad, torch.ones_like(model[2].weight))
    assert model[0].weight.grad is None
    assert len(list(model.buffers())) == buffers
    for module in model.modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        assert not any(hooks)


def test_a_copy_is_pruned_if_asked_for() -> None:
    model, twin = tiny(), tiny()
    before = snapshot(model)
    result = prune(model, cut(points(24), 8), inplace=False, recover=False)
    assert result.model is not model
    assert same(snapshot(model), before)
    assert prune(twin, cut(points(24), 8), recover=False).model is twin
    assert same(snapshot(result.model), snapshot(twin))


def test_saved_masks_give_a_dense_model_the_same_zeros() -> None:
    model, dense = tiny(), tiny()
    result = prune(model, cut(points(24), 8), recover=False)
    chita.apply_masks(dense, result.masks)
    assert torch.equal(Weights(model).vector() == 0, Weights(dense).vector() == 0)
    assert not torch.equal(Weights(model).vector(), Weights(dense).vector())


def test_every_stage_has_its_row() -> None:
    model, (x, t) = tiny(), points(24)
    watch = Watch(model)
    result = prune(
        model,
        Again([(x, t)]),
        sparsity=0.9,
        stages=5,
        schedule="linear",
        start=0.3,
        hold=0.4,
        recover=False,
    )
    planned = sparsities("linear", 0.9, stages=5, start=0.3, hold=0.4)
    assert [row.stage for row in result.stages] == [1, 2, 3, 4, 5]
    assert [row.sparsity for row in result.stages] == planned
    assert planned == pytest.approx([0.3, 0.6, 0.9, 0.9, 0.9])
    assert [row.kept for row in result.stages] == [kept_weights(P, s) for s in planned]
    seen = watch.stages()
    assert len(seen) == 5
    fresh = tiny()
    for row, before, after in zip(
        result.stages, seen, [*seen[1:], Weights(model).vector()], strict=True
    ):
        assert int((after != 0).sum()) == row.kept
        weights = Weights(fresh)
        weights.assign(before)
        A, losses = brute_force(fresh, weights, x, t, 2)
        assert row.loss == pytest.approx(losses.mean().item())
        rho, d = A @ (after - before) + 1 / 2, after - before
        assert row.objective == pytest.approx(float(rho @ rho / 2 + 12 * 0.01 / 2 * (d @ d)))
        assert (row.ridge, row.held_out_loss) == (0.01, None)
        assert row.iterations <= 5
        assert row.gradient_seconds > 0 and row.solve_seconds > 0
    assert result.objective == result.stages[-1].objective
    assert result.seconds.gradients == pytest.approx(sum(r.gradient_seconds for r in result.stages))
    assert result.seconds.solve == pytest.approx(sum(r.solve_seconds for r in result.stages))
    assert result.seconds.total >= result.seconds.gradients + result.seconds.solve


def test_weights_pruned_in_one_stage_may_come_back() -> None:
    model = tiny()
    watch = Watch(model)
    prune(
        model,
        [points(24)],
        sparsity=0.5,
        start=0.5,
        stages=5,
        solver="cd",
        ridge=1e-4,
        recover=False,
    )
    kept = [weights != 0 for weights in [*watch.stages(), Weights(model).vector()]]
    back = sum(int((after & ~before).sum()) for before, after in pairwise(kept))
    assert back > 0
    assert [int(mask.sum()) for mask in kept[1:]] == [36] * 5


def test_magnitude_keeps_the_largest_weights_and_needs_no_data() -> None:
    model = tiny()
    w0 = Weights(model).vector()
    result = prune(model, None, method="magnitude", ridge="auto")
    largest = w0.abs() >= w0.abs().sort(descending=True).values[17]
    assert torch.equal(Weights(model).vector(), torch.where(largest, w0, 0.0))
    row = result.stages[0]
    assert (row.ridge, row.objective, row.loss, row.held_out_loss) == (None, None, None, None)
    assert result.samples == 0


def test_a_network_with_more_zeros_than_the_target_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, batches = tiny(), cut(points(24), 8)
    for sparsity, warned in ((0.75, False), (0.75, False), (0.5, True), (0.9999, True)):
        caplog.clear()
        chita.prune(model, batches, sparsity=sparsity, method="magnitude", progress=False)
        assert bool(caplog.records) == warned
        if sparsity == 0.5:
            assert says(caplog.text, "zero already", 54, 72, 0.5, 0.75)
    assert says(caplog.text, "leaves none", 0.9999)
