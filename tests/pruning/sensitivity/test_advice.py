import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.pruning.sensitivity.advice import advise
from tests.pruning.sensitivity.curves import curves
from tests.support.messages import naming, says

FLAT = (1.0, 1.0, 1.01, 1.1)
STEEP = (2.0, 3.0, 4.0, 5.0)


def test_a_small_steep_layer_is_kept_dense_and_named_with_its_figures() -> None:
    advice = advise(curves([(10, STEEP), (990, FLAT)]), 0.9)
    (limit,) = advice.limits
    assert (limit.layer, limit.sparsity) == ("a", 0)
    assert advice.before == pytest.approx(3.01)
    # 900 zeros among 990 weights: 0.90909 is 0.1136 of the way from 0.9 to 0.98
    assert advice.after == pytest.approx(0.01 + (900 / 990 - 0.9) / 0.08 * 0.09)
    assert says(str(advice), "a", "1.0%", "100%", "90%", 3, 3.01, "--at-most 'a=0'")


def test_a_layer_that_bears_half_is_limited_to_that() -> None:
    advice = advise(curves([(500, FLAT), (480, FLAT), (20, (1.0, 3.0, 4.0, 5.0))]), 0.9)
    (limit,) = advice.limits
    assert (limit.layer, limit.sparsity) == ("c", 0.5)
    assert says(str(advice), "c", "50%", "--at-most 'c=0.5'")


def test_layers_alike_need_no_advice() -> None:
    advice = advise(curves([(100, STEEP), (100, STEEP), (100, STEEP)]), 0.9)
    assert advice.limits == ()
    assert advice.before == advice.after == pytest.approx(9)
    assert says(str(advice), "layer") and "--at-most" not in str(advice)
    assert advise(curves([(100, (1.0,) * 4)] * 2), 0.9).limits == ()


def test_a_large_layer_is_not_spared_at_the_cost_of_all_others() -> None:
    """The others cannot take 900 zeros, however little they mind."""
    advice = advise(curves([(990, STEEP), (10, FLAT)]), 0.9)
    assert advice.limits == ()


def test_a_loss_that_breaks_is_avoided() -> None:
    advice = advise(curves([(10, (1.0, math.nan, math.nan, math.nan)), (990, FLAT)]), 0.9)
    assert [(x.layer, x.sparsity) for x in advice.limits] == [("a", 0.5)]
    assert advice.after < 1


@pytest.mark.parametrize("sparsity", [0.0, -0.1, 0.99])
def test_outside_of_the_ladder_there_is_no_advice(sparsity: float) -> None:
    with pytest.raises(ChitaError, match=naming("sparsity", 0.98, sparsity)):
        advise(curves([(10, FLAT)]), sparsity)


LAYERS = st.lists(
    st.tuples(st.integers(1, 1000), st.lists(st.floats(0, 5), min_size=4, max_size=4)),
    min_size=1,
    max_size=6,
)


@given(LAYERS, st.floats(0.01, 0.98))
def test_limits_lie_below_the_sparsity_and_pay(
    layers: list[tuple[int, list[float]]], sparsity: float
) -> None:
    found = curves(layers)
    advice = advise(found, sparsity)
    assert len(advice.limits) < len(layers)
    assert all(limit.sparsity < sparsity for limit in advice.limits)
    assert advice.after <= advice.before * (1 - 0.0999 * len(advice.limits))
    spared = {limit.layer: limit.sparsity for limit in advice.limits}
    room = sum(x.weights for x in found.layers if x.name not in spared)
    zeros = sparsity * sum(x.weights for x in found.layers)
    zeros -= sum(x.weights * spared[x.name] for x in found.layers if x.name in spared)
    assert zeros <= 0.9801 * room
