import pytest

from chita.gradual.erk import erk_counts
from chita.weights import Weights
from chita.zoo import NETWORKS, ResNet20


@pytest.mark.parametrize("sparsity", [0.5, 0.9, 0.98])
def test_densities_of_resnet20(sparsity: float) -> None:
    """One factor for all layers that are not dense, and dense ones would have had more."""
    weights = Weights(ResNet20(), NETWORKS["resnet20"].prunable)
    shapes = [tuple(weight.parameter.shape) for weight in weights]
    sizes = [weight.parameter.numel() for weight in weights]
    k = int((1 - sparsity) * weights.size)
    counts = erk_counts(shapes, k)
    assert sum(counts) == k
    factors = [count / sum(shape) for count, shape in zip(counts, shapes, strict=True)]
    opened = [f for f, c, s in zip(factors, counts, sizes, strict=True) if c < s]
    assert max(opened) == pytest.approx(min(opened), rel=0.02)
    dense = [s / sum(x) for c, s, x in zip(counts, sizes, shapes, strict=True) if c == s]
    assert all(factor <= max(opened) + 0.02 for factor in dense)


def test_small_layers_are_denser_and_kernels_count() -> None:
    shapes = [(16, 3, 3, 3), (64, 64, 3, 3), (10, 64)]
    counts = erk_counts(shapes, 2000)
    assert counts == [215, 1150, 635]  # 25 : 134 : 74
    counts = erk_counts(shapes, 4000)
    assert counts == [432, 2928, 640]  # two are dense, the rest is for the third
