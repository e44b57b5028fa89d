import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.solver.constraints.constraint import hard_threshold, top_k


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_top_k_is_a_stable_sort_by_magnitude(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)))
    by_magnitude = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))
    assert top_k(torch.tensor(values, dtype=torch.float32), k).tolist() == sorted(by_magnitude[:k])


@pytest.mark.parametrize("k", [0, 1, 4999, 5000])
def test_hard_threshold_keeps_exactly_k_of_a_long_vector(k: int) -> None:
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    kept, support = hard_threshold(x, k)
    assert torch.equal(support, top_k(x, k))
    assert int((kept != 0).sum()) == k
    assert torch.equal(kept[kept != 0], x[kept != 0])
    dropped = x[kept == 0].abs()
    assert k in (0, 5000) or kept[kept != 0].abs().min() >= dropped.max()


def test_the_lowest_of_equals_win() -> None:
    assert top_k(torch.tensor([1.0, -2.0, 2.0, 2.0, -2.0]), 2).tolist() == [1, 2]
    assert top_k(torch.zeros(5), 3).tolist() == [0, 1, 2]
