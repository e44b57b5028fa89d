"""Every way to invert gives the inverse of A^T A + mu I, whole and in blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita import ChitaError
from chita.methods.m_fac import RowByRow, matrix_free
from chita.methods.surgeon_inverse import BlockDiagonal, Invert, cholesky
from chita.methods.woodfisher import Woodbury
from chita.solver.algorithm import Layout
from tests.methods.dense import dense_inverse
from tests.solver.problems import random_problem
from tests.support.messages import naming

INVERSES: dict[str, Invert] = {
    "woodbury by one": Woodbury(at_once=1),
    "woodbury by 32": Woodbury(at_once=32),
    "row by row": RowByRow,
    "matrix-free": matrix_free,
}
EXACT = {"rtol": 1e-8, "atol": 1e-8}


@pytest.mark.parametrize("name", INVERSES)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    layers=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    block_size=st.none() | st.integers(1, 30),
    lam=st.sampled_from([1e-3, 0.1, 10.0]),
)
def test_it_is_the_inverse(
    name: str, seed: int, n: int, layers: list[int], block_size: int | None, lam: float
) -> None:
    layout = Layout(tuple(layers), block_size)
    problem = random_problem(seed, n=n, p=sum(layers), lam=lam)
    problem.matrix.whole()[seed % sum(layers)] = 0.0
    truth = dense_inverse(problem, layout)
    inverse = BlockDiagonal(problem, layout, INVERSES[name])
    torch.testing.assert_close(inverse.diagonal(), truth.diagonal(), **EXACT)
    # Products with the unit vectors are the whole inverse, and zero outside the blocks.
    unit = torch.eye(sum(layers), dtype=torch.float64)
    columns = torch.stack([inverse.product(e) for e in unit])
    torch.testing.assert_close(columns, truth, **EXACT)


@pytest.mark.parametrize("name", INVERSES)
@pytest.mark.parametrize("block_size", [None, 60])
def test_float32_gradients_lose_little(name: str, block_size: int | None) -> None:
    layout = Layout((200, 100), block_size)
    problem = random_problem(1, n=40, p=300, lam=1e-4, dtype=torch.float32)
    truth = dense_inverse(problem, layout)
    inverse = BlockDiagonal(problem, layout, INVERSES[name])
    v = torch.linspace(-1, 1, 300)
    assert inverse.product(v).dtype == torch.float32
    torch.testing.assert_close(inverse.diagonal().double(), truth.diagonal(), rtol=2e-3, atol=0)
    least = 2e-3 / problem.mu  # H^-1 has 1 / mu for its norm
    torch.testing.assert_close(inverse.product(v).double(), truth @ v.double(), rtol=0, atol=least)


@pytest.mark.parametrize("name", INVERSES)
def test_without_a_ridge_there_is_no_inverse(name: str) -> None:
    problem = random_problem(0, lam=0.0)
    with pytest.raises(ChitaError, match=naming("ridge", 0)):
        BlockDiagonal(problem, Layout((16,)), INVERSES[name])


def test_a_system_that_rounding_has_broken_leaves_no_number() -> None:
    systems = torch.stack([torch.eye(3), -torch.eye(3)])
    factors = cholesky(systems, 0.5)
    torch.testing.assert_close(factors[0], 1.5**0.5 * torch.eye(3, dtype=torch.float64))
    assert bool(factors[1].isnan().all())
