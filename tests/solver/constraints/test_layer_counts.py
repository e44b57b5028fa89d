from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.model.weights import Weights
from chita.solver.constraints.layer_counts import (
    erk_counts,
    erk_shares,
    share_out,
    top_k_mask,
)
from chita.zoo import NETWORKS, ResNet20
from tests.support.messages import naming

LAYERS = st.lists(st.tuples(st.floats(1e-6, 1e6), st.integers(0, 500)), min_size=1, max_size=12)


@given(LAYERS, st.floats(0, 1))
def test_the_total_is_exact_and_no_limit_is_exceeded(
    layers: list[tuple[float, int]], part: float
) -> None:
    shares, limits = [s for s, _ in layers], [limit for _, limit in layers]
    total = int(part * sum(limits))
    counts = share_out(total, shares, limits)
    assert sum(counts) == total
    assert all(0 <= count <= limit for count, limit in zip(counts, limits, strict=True))


@given(LAYERS, st.floats(0, 1))
def test_open_layers_are_in_proportion_and_full_ones_deserve_it(
    layers: list[tuple[float, int]], part: float
) -> None:
    """One scale fits all: where a layer is not full its number is scale times share, to 1."""
    shares, limits = [s for s, _ in layers], [limit for _, limit in layers]
    counts = share_out(int(part * sum(limits)), shares, limits)
    least = max((c - 1) / s for c, s in zip(counts, shares, strict=True))
    most = min(
        ((c + 1) / s for c, s, x in zip(counts, shares, limits, strict=True) if c < x),
        default=float("inf"),
    )
    open_least = max(
        ((c - 1) / s for c, s, x in zip(counts, shares, limits, strict=True) if c < x), default=0
    )
    assert open_least <= most * (1 + 1e-9)
    assert least <= most * (1 + 1e-9)


@given(LAYERS, st.data())
def test_least_is_kept_and_no_number_rises_when_the_total_falls(
    layers: list[tuple[float, int]], data: st.DataObject
) -> None:
    shares, most = [s for s, _ in layers], [limit for _, limit in layers]
    least = [data.draw(st.integers(0, limit)) for limit in most]
    totals = sorted(data.draw(st.lists(st.integers(sum(least), sum(most)), min_size=2)))
    found = [share_out(total, shares, most, least) for total in totals]
    for total, counts in zip(totals, found, strict=True):
        assert sum(counts) == total
        assert all(a <= c <= b for a, c, b in zip(least, counts, most, strict=True))
    for fewer, more in pairwise(found):
        assert all(a <= b for a, b in zip(fewer, more, strict=True))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.floats(0, 1))
def test_the_steps_that_stand_lowest_are_taken(sizes: list[int], part: float) -> None:
    """By brute force: all steps sorted, of equals the first."""
    total = int(part * sum(sizes))
    steps = sorted((Fraction(2 * c + 1, 2 * n), i) for i, n in enumerate(sizes) for c in range(n))
    taken = [i for _, i in steps[:total]]
    assert share_out(total, sizes, sizes) == [taken.count(i) for i in range(len(sizes))]


def test_a_share_of_nothing_gets_what_nobody_else_can_take() -> None:
    assert share_out(5, [0.0, 1.0], [4, 3]) == [2, 3]
    assert share_out(2, [0.0, 1.0], [4, 3]) == [0, 2]
    assert share_out(4, [0.0, 0.0], [4, 4]) == [2, 2]


def test_what_a_full_layer_cannot_take_goes_to_the_others() -> None:
    assert share_out(12, [10, 1, 1], [2, 20, 20]) == [2, 5, 5]
    assert share_out(0, [1, 2], [3, 4]) == [0, 0]
    assert share_out(7, [1, 2], [3, 4]) == [3, 4]


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(ChitaError, match=naming(8, [3, 4])):
        share_out(8, [1, 2], [3, 4])


def test_the_same_share_of_every_layer() -> None:
    assert share_out(121, [1000, 200, 10], [1000, 200, 10]) == [100, 20, 1]


def test_a_scalar_has_a_share_of_its_own() -> None:
    assert erk_counts([(), (8, 4), (1,)], 14) == [1, 12, 1]
    assert erk_shares([(), (8, 4), (1,)]) == [1, 12, 1]


def test_exactly_k_among_equals() -> None:
    scores = torch.tensor([[1.0, 3.0, 1.0], [1.0, 2.0, 1.0]])
    mask = top_k_mask(scores, 3)
    assert mask.shape == scores.shape
    assert mask.sum() == 3
    assert mask[0, 1]
    assert mask[1, 1]
    assert not top_k_mask(scores, 0).any()


@pytest.mark.parametrize("sparsity", [0.5, 0.9, 0.98])
def test_densities_of_resnet20(sparsity: float) -> None:
    """One factor for all layers that are not dense, and dense ones would have had more."""
    weights = Weights(ResNet20(), NETWORKS["resnet20"].prunable)
    shapes = [tuple(weight.parameter.shape) for weight in weights]
    sizes = weights.sizes
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
