from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.solver.blocks.batched_algebra import definite_factor, largest, lower_gram, times
from chita.solver.constraints.constraint import top_k
from tests.support.messages import naming


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_times_and_lower_gram_are_the_products_of_each() -> None:
    x, v = random(3, 7, 11), random(3, 7, seed=1)
    for row in range(3):
        torch.testing.assert_close(times(v, x)[row], x[row].t() @ v[row])
        torch.testing.assert_close(lower_gram(x)[row].tril(), (x[row].t() @ x[row]).tril())


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=4))
def test_the_largest_are_those_of_the_threshold_in_order(rows: list[list[int]]) -> None:
    """Small integers: ties everywhere."""
    x = torch.tensor(rows, dtype=torch.float32)
    for count in range(1, 7):
        places = largest(x, count)
        for row, found in zip(x, places, strict=True):
            assert torch.equal(found.sort().values, top_k(row, count))
            pairs = [(-float(row[place]), int(place)) for place in found]
            assert pairs == sorted(pairs)


def test_what_is_not_a_number_is_chosen_last() -> None:
    x = torch.tensor([[torch.nan, 1.0, torch.inf, 0.5]])
    assert largest(x, 4).tolist() == [[2, 1, 3, 0]]


def test_factors_of_definite_systems() -> None:
    systems = torch.tensor([[[4.0, 2.0], [2.0, 5.0]], [[9.0, 0.0], [0.0, 1.0]]])
    expected = torch.tensor([[[2.0, 0.0], [1.0, 2.0]], [[3.0, 0.0], [0.0, 1.0]]])
    torch.testing.assert_close(definite_factor(systems), expected)


@pytest.mark.parametrize("broken", [-1.0, 0.0, torch.nan])
def test_a_system_without_factor_is_an_error_of_the_ridge(broken: float) -> None:
    with pytest.raises(ChitaError, match=naming("ridge", "0.01")):
        definite_factor(torch.eye(3).index_fill(0, torch.tensor([1]), broken)[None])
