from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.solver.blocks.batched_algebra import damped_solve, largest, lower_gram, times
from chita.solver.constraints.threshold import top_k
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


def test_damped_solve_is_the_inverse_of_each() -> None:
    x, rhs = random(4, 9, 5), random(4, 5, seed=1)
    solved, jitter = damped_solve(x.mT @ x, 0.3, rhs)
    damped = x.mT @ x + 0.3 * torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(solved, torch.linalg.solve(damped, rhs))
    assert jitter.tolist() == [0.0] * 4


def test_jitter_goes_to_singular_systems_alone() -> None:
    x = random(3, 9, 5)
    x[1, :, 4] = x[1, :, 3]
    systems, rhs = x.mT @ x, random(3, 5, seed=1)
    systems[1, 4] = systems[1, 3]
    systems[1, :, 4] = systems[1, :, 3]
    systems[1, 4, 4] *= 1 - 1e-12  # below singular
    before = systems.clone()
    solved, jitter = damped_solve(systems, 0.0, rhs)
    assert torch.equal(systems, before)
    assert jitter[0] == jitter[2] == 0
    assert 0 < float(jitter[1]) < 1e-6 * float(systems[1].diagonal().max())
    for row in (0, 2):
        torch.testing.assert_close(solved[row], torch.linalg.solve(systems[row], rhs[row]))
    raised = systems[1] + jitter[1] * torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(raised @ solved[1], rhs[1], rtol=1e-3, atol=1e-3)


def test_a_system_of_zeros_survives_and_one_of_infinities_is_told() -> None:
    zeros, rhs = torch.zeros(2, 3, 3, dtype=torch.float64), random(2, 3)
    assert bool(damped_solve(zeros, 0.0, rhs)[0].isfinite().all())
    zeros[1].fill_(torch.inf)
    with pytest.raises(ChitaError, match=naming(re.compile("finite"))):
        damped_solve(zeros, 0.0, rhs)
