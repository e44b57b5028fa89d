import math

import pytest
from torch import nn

from chita.gradual.rivals.gmp import GMP
from chita.gradual.rivals.incremental import Incremental
from chita.zoo import NETWORKS, MLPNet, ResNet20
from tests.gradual.training import run, sgd, small_model, small_plan, zeros


@pytest.mark.parametrize("sparsity", [0.9, 0.95, 0.98])
def test_the_first_layer_is_dense_and_the_last_at_most_80_percent(sparsity: float) -> None:
    model = ResNet20()
    include = NETWORKS["resnet20"].prunable
    pruner = GMP(model, sgd(model), small_plan(sparsity), include=include)
    counts = pruner.counts(pruner.k)
    assert sum(counts) == pruner.k == math.floor((1 - sparsity) * sum(pruner.weights.sizes))
    assert counts[0] == pruner.weights.sizes[0]
    assert counts[-1] == math.ceil(0.2 * pruner.weights.sizes[-1])
    between = [c / s for c, s in zip(counts[1:-1], pruner.weights.sizes[1:-1], strict=True)]
    assert max(between) - min(between) < 1 / 2304
    assert max(between) < 1 - sparsity


def test_below_80_percent_the_last_layer_is_as_the_others() -> None:
    model = ResNet20()
    include = NETWORKS["resnet20"].prunable
    pruner = GMP(model, sgd(model), small_plan(0.6), include=include)
    counts = pruner.counts(pruner.k)
    assert counts[-1] / pruner.weights.sizes[-1] == pytest.approx(0.4, abs=0.01)


def test_a_first_layer_that_is_most_of_the_network_is_pruned() -> None:
    model = MLPNet()
    pruner = GMP(model, sgd(model), small_plan(0.9))
    counts = pruner.counts(pruner.k)
    assert sum(counts) == pruner.k
    assert counts[0] / pruner.weights.sizes[0] == pytest.approx(0.1, abs=0.005)
    assert counts[-1] == 40


def test_where_the_rules_leave_no_room_all_layers_are_alike() -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 100))
    plan = small_plan(0.9)
    assert GMP(model, sgd(model), plan).counts(110) == Incremental(model, sgd(model), plan).counts(
        110
    )


def test_it_trains_to_the_target() -> None:
    model, plan = small_model(), small_plan(0.85)
    optimizer = sgd(model)
    pruner = GMP(model, optimizer, plan, every=10)
    run(model, optimizer, pruner, plan)
    pruner.finalize()
    assert sum(zeros(model)) == 832 - int(0.15 * 832)
    assert zeros(model)[-1] == 64 - math.ceil(0.2 * 64)
