import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.solver.constraints.layer_counts import top_k_by_layer

sizes = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def scores(seed: int, p: int) -> torch.Tensor:
    return torch.randn(p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(0, 10**6), sizes, st.data())
def test_the_same_share_of_every_layer(seed: int, layers: list[int], data: st.DataObject) -> None:
    p = sum(layers)
    k = data.draw(st.integers(0, p))
    values = scores(seed, p)
    kept = top_k_by_layer(values, k, layers)
    assert len(kept) == k and torch.equal(kept, kept.unique())
    start = 0
    for size in layers:
        inside = kept[(kept >= start) & (kept < start + size)] - start
        # Half a weight for the layer's own rounding, and what the others' may add up to.
        assert abs(len(inside) - k * size / p) <= 0.5 + 0.5 * size * len(layers) / p
        largest = values[start : start + size].abs().topk(len(inside)).indices
        assert set(inside.tolist()) == set(largest.tolist())
        start += size


@given(st.integers(0, 10**6), sizes)
@settings(deadline=None, max_examples=25)
def test_fewer_in_all_are_fewer_in_every_layer(seed: int, layers: list[int]) -> None:
    values = scores(seed, sum(layers))
    wider = top_k_by_layer(values, sum(layers), layers)
    for k in range(sum(layers) - 1, -1, -1):
        kept = top_k_by_layer(values, k, layers)
        assert set(kept.tolist()) < set(wider.tolist())
        wider = kept


def test_layers_of_equal_size_are_cut_equally() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0, -40.0, 20.0, 30.0])
    assert top_k_by_layer(values, 4, (4, 4)).tolist() == [2, 3, 5, 7]
    assert top_k_by_layer(values, 3, (4, 4)).tolist() == [2, 3, 5]  # the earlier of equals
