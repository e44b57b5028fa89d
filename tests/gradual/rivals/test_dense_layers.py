import math

import pytest
import torch
from torch import nn

from chita.gradual.registry import make_sparsifier
from chita.gradual.rivals.dense_layers import bounded_counts, bounds, is_depthwise
from chita.gradual.rivals.dnw import DNW
from chita.model.weights import Weights
from chita.pruning.config import kept_weights
from chita.zoo import NETWORKS, MLPNet, MobileNetV1, ResNet20
from tests.gradual.small import small_network, train
from tests.gradual.training import sgd, small_plan

CONVOLUTIONS = [(16, 3, 3, 3), (32, 16, 3, 3), (10, 32)]  # 432, 4608 and 320 weights
FIRST_DENSE = ["incremental", "gmp", "snfs", "dnw"]


def test_the_first_layer_is_dense_and_the_others_share_the_rest() -> None:
    least = bounds(CONVOLUTIONS, 1000)
    assert least == [432, 0, 0]
    counts = bounded_counts([432, 4608, 320], 1000, least)
    assert counts[0] == 432
    assert sum(counts) == 1000
    assert counts[1] / 4608 == pytest.approx(568 / 4928, abs=1 / 320)


def test_a_first_layer_of_more_than_half_of_the_weights_is_pruned() -> None:
    assert bounds(CONVOLUTIONS, 863) == [0, 0, 0]
    assert bounds(CONVOLUTIONS, 864) == [432, 0, 0]


def test_a_rule_without_room_is_dropped_and_the_others_hold() -> None:
    assert bounds(CONVOLUTIONS, 992, last_density=0.2) == [432, 0, 64]
    assert bounds(CONVOLUTIONS, 990, last_density=0.2) == [432, 0, 0]
    assert bounds(CONVOLUTIONS, 200, last_density=0.2) == [0, 0, 64]


def test_depthwise_convolutions() -> None:
    assert is_depthwise((8, 1, 3, 3))
    assert not is_depthwise((8, 2, 3, 3))
    assert not is_depthwise((8, 1))  # a Linear layer of one input
    shapes = [(8, 3, 3, 3), (8, 1, 3, 3), (64, 8, 1, 1)]
    assert bounds(shapes, 600, depthwise=True) == [216, 72, 0]
    assert bounds(shapes, 600) == [216, 0, 0]


@pytest.mark.parametrize("method", FIRST_DENSE)
@pytest.mark.parametrize("sparsity", [0.8, 0.9])
def test_a_training_ends_with_a_dense_first_layer_and_k_weights(
    method: str, sparsity: float
) -> None:
    model = small_network()
    history = train(model, method=method, sparsity=sparsity)
    weights = Weights(model)
    left = [int(weight.parameter.count_nonzero()) for weight in weights]
    assert left[0] == weights.sizes[0]
    assert sum(left) == history.nonzeros == kept_weights(weights.size, sparsity)
    if method in ("incremental", "dnw"):  # of which all other layers have one sparsity
        density = (sum(left) - left[0]) / sum(weights.sizes[1:])
        expected = [density * size for size in weights.sizes[1:]]
        assert left[1:] == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("method", FIRST_DENSE)
def test_resnet20_at_98_percent_keeps_its_first_convolution(method: str) -> None:
    model = ResNet20()
    plan, include = small_plan(0.98), NETWORKS["resnet20"].prunable
    sparsifier = make_sparsifier(method, model, sgd(model), plan, include=include)
    if isinstance(sparsifier, DNW):
        kept = [int(weight.count_nonzero()) for weight in sparsifier.effective().values()]
    else:
        sparsifier.finalize()
        kept = [int(w.parameter.count_nonzero()) for w in sparsifier.weights]
    assert kept[0] == 432
    assert sum(kept) == kept_weights(sparsifier.weights.size, 0.98)


@pytest.mark.parametrize("method", FIRST_DENSE)
def test_the_first_layer_of_an_mlp_is_pruned(method: str) -> None:
    """It has nearly all the weights."""
    model = MLPNet()
    sparsifier = make_sparsifier(method, model, sgd(model), small_plan(0.9))
    sparsifier.finalize()
    kept = [int(w.parameter.count_nonzero()) for w in sparsifier.weights]
    assert kept[0] / sparsifier.weights.sizes[0] == pytest.approx(0.1, abs=0.005)
    assert sum(kept) == kept_weights(sparsifier.weights.size, 0.9)


def test_incremental_keeps_the_depthwise_convolutions_of_mobilenet() -> None:
    with torch.device("meta"):
        model = MobileNetV1()
    shapes = [weight.parameter.shape for weight in Weights(model)]
    sizes = [math.prod(shape) for shape in shapes]
    k = kept_weights(sum(sizes), 0.89)
    counts = bounded_counts(sizes, k, bounds(shapes, k, depthwise=True))
    assert sum(counts) == k
    for count, size, shape in zip(counts, sizes, shapes, strict=True):
        if is_depthwise(shape) or shape[1] == 3:
            assert count == size
        else:  # 89 % of all weights is 90 % of these, the paper's second row
            assert count / size == pytest.approx(0.1, abs=0.002)


def test_no_layer_gains_weights_on_the_way_to_the_target() -> None:
    """The rule of the target holds from the first pruning step on."""
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 100), nn.Linear(100, 10))
    pruner = make_sparsifier("gmp", model, sgd(model), small_plan(0.9))
    before = list(pruner.weights.sizes)
    for k in range(sum(before), pruner.k, -10):
        counts = pruner.counts(k)
        assert all(count <= old for count, old in zip(counts, before, strict=True))
        before = counts
