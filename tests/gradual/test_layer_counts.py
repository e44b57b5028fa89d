import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.gradual.layer_counts import share_out, top_k_mask, uniform_counts

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


def test_what_a_full_layer_cannot_take_goes_to_the_others() -> None:
    assert share_out(12, [10, 1, 1], [2, 20, 20]) == [2, 5, 5]
    assert share_out(0, [1, 2], [3, 4]) == [0, 0]
    assert share_out(7, [1, 2], [3, 4]) == [3, 4]


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(ChitaError, match=r"8 weights.*\[3, 4\]"):
        share_out(8, [1, 2], [3, 4])


def test_the_same_share_of_every_layer() -> None:
    assert uniform_counts([1000, 200, 10], 121) == [100, 20, 1]


def test_exactly_k_among_equals() -> None:
    scores = torch.tensor([[1.0, 3.0, 1.0], [1.0, 2.0, 1.0]])
    mask = top_k_mask(scores, 3)
    assert mask.shape == scores.shape
    assert mask.sum() == 3
    assert mask[0, 1]
    assert mask[1, 1]
    assert not top_k_mask(scores, 0).any()
