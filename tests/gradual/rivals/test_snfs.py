from dataclasses import replace

import pytest
import torch

from chita.gradual import train_sparse
from chita.gradual.recipe import shipped_recipe
from chita.gradual.rivals.snfs import SNFS, regrown
from chita.pruning.config import kept_weights
from chita.zoo import NETWORKS, MLPNet
from tests.gradual.small import small_splits
from tests.gradual.training import SIZES, accuracy, run, sgd, small_model, small_plan, zeros


def test_layers_with_more_momentum_get_what_is_freed() -> None:
    """Their means are 3 and 1 on the kept weights: of 8 freed, 6 grow in one and 2 in the other."""
    generator = torch.Generator().manual_seed(0)
    kept = [torch.arange(40) < 8, torch.arange(40) < 8]
    magnitudes = [torch.rand(40, generator=generator) * mask for mask in kept]
    momentum = [torch.rand(40, generator=generator) for _ in kept]
    for m, mask, mean in zip(momentum, kept, (3.0, 1.0), strict=True):
        m[mask] *= mean / m[mask].mean()
    after = regrown(kept, magnitudes, momentum, share=0.5)
    assert [int(mask.sum()) for mask in after] == [4 + 6, 4 + 2]
    for old, new, w, m, number in zip(kept, after, magnitudes, momentum, (6, 2), strict=True):
        active = old.nonzero().flatten().tolist()
        stay = set(sorted(active, key=lambda i: w[i])[4:])
        grown = sorted(set(range(40)) - stay, key=lambda i: -m[i])[:number]
        assert set(new.nonzero().flatten().tolist()) == stay | set(grown)


def test_a_full_layer_passes_on_what_it_cannot_take() -> None:
    kept = [torch.arange(6) < 4, torch.arange(40) < 8]
    momentum = [torch.full((6,), 100.0), torch.full((40,), 1.0)]
    after = regrown(kept, [torch.rand(6), torch.rand(40)], momentum, share=0.5)
    assert [int(mask.sum()) for mask in after] == [6, 6]


def test_weights_of_a_dead_unit_do_not_grow_while_others_can() -> None:
    """8 are freed, and 8 of the first layer's have no momentum."""
    kept = [torch.arange(12) < 4, torch.arange(40) < 12]
    alive = torch.arange(12) < 4
    after = regrown(
        kept, [torch.rand(12), torch.rand(40)], [100.0 * alive, torch.ones(40)], share=0.5
    )
    assert after[0].equal(alive)
    assert int(after[1].sum()) == 12


def test_weights_that_grew_and_stayed_at_zero_move_elsewhere() -> None:
    """3 of the first layer's are stuck, more than the share that goes, with momentum left over."""
    kept = [torch.arange(12) < 6, torch.arange(40) < 12]
    magnitudes = [torch.arange(12.0) - 2, 1 + torch.rand(40)]
    magnitudes[0][:3] = 0
    after = regrown(kept, magnitudes, [torch.full((12,), 5.0), torch.ones(40)], share=0.2)
    assert not after[0][:3].any()
    assert sum(int(mask.sum()) for mask in after) == 18


def test_without_momentum_nothing_breaks() -> None:
    kept = [torch.arange(6) < 4, torch.arange(6) < 4]
    after = regrown(kept, [torch.rand(6)] * 2, [torch.zeros(6)] * 2, share=0.5)
    assert sum(int(mask.sum()) for mask in after) == 8


def test_the_momentum_is_that_of_all_weights_smoothed() -> None:
    model, plan = small_model(), small_plan(0.9)
    optimizer = sgd(model)
    snfs = SNFS(model, optimizer, plan)
    parameter = model[0].weight
    expected = torch.zeros_like(parameter)
    for step in range(5):
        parameter.grad = torch.full_like(parameter, float(step + 1))
        for other in (model[2].weight, model[4].weight):
            other.grad = torch.zeros_like(other)
        optimizer.step()
        snfs.after_step()
        expected = 0.9 * expected + 0.1 * (step + 1)
    torch.testing.assert_close(snfs.state_dict()["momentum"][0], expected.flatten())


def test_a_weight_without_gradient_at_the_end_of_an_epoch_has_no_momentum() -> None:
    """What is left of the momentum of a unit that died must not let its weights grow."""
    model, plan = small_model(), small_plan(0.9, steps=3)
    optimizer = sgd(model)
    snfs = SNFS(model, optimizer, plan)
    parameters = [model[0].weight, model[2].weight, model[4].weight]
    for step in range(3):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        if step > 0:
            parameters[0].grad[5] = 0  # a unit of the first layer dies after the first step
        optimizer.step()
        snfs.after_step()
        momentum = snfs.state_dict()["momentum"][0].view(32, 8)
        assert bool((momentum[5] == 0).all()) == (step == 2)
    assert (momentum[:5] > 0).all()


def test_the_number_of_weights_stays_and_moves_between_layers() -> None:
    model, plan = small_model(), small_plan(0.8)
    optimizer = sgd(model)
    snfs = SNFS(model, optimizer, plan)
    k = int(0.2 * sum(SIZES))
    start = [int(kept.sum()) for kept in snfs.kept]
    assert start == pytest.approx([0.2 * size for size in SIZES], abs=1)
    for epoch in range(plan.epochs):
        run(model, optimizer, snfs, plan, begin=epoch, end=epoch + 1)
        assert sum(int(kept.sum()) for kept in snfs.kept) == k
    assert [int(kept.sum()) for kept in snfs.kept] != start
    snfs.finalize()
    assert sum(zeros(model)) >= sum(SIZES) - k
    assert accuracy(model) > 0.9


def test_exactly_k_weights_are_not_zero_though_units_die() -> None:
    """A hidden unit of MLPNet dies in the first epoch from these weights: 10 were missing."""
    model, network = MLPNet(), NETWORKS["mlpnet"]
    recipe = replace(shipped_recipe("mlpnet"), epochs=7)
    history = train_sparse(
        model,
        small_splits(2000),
        recipe,
        method="snfs",
        sparsity=0.9,
        include=network.prunable,
    )
    assert history.nonzeros == kept_weights(history.weights, 0.9)


def test_the_share_falls_on_a_cosine() -> None:
    model = small_model()
    snfs = SNFS(model, sgd(model), small_plan(epochs=8))
    assert snfs.share_at(0) == pytest.approx(0.5)
    assert snfs.share_at(4) == pytest.approx(0.25)
    assert snfs.share_at(8) == pytest.approx(0.0)
