"""M-FAC: the fast form has the factor of the published recursion, and picks the smaller system."""

from __future__ import annotations

import pytest
import torch

from chita.methods import m_fac as module
from chita.methods.m_fac import RowByRow, SampleSpace, WeightSpace, matrix_free, matrix_free_memory
from chita.methods.surgeon_inverse import BlockDiagonal
from chita.solver.algorithm import Layout
from chita.solver.blocks.block_batch import BlockBatch
from tests.methods.dense import dense_inverse
from tests.solver.problems import random_problem


def test_both_forms_have_one_factor() -> None:
    """The published v_i / sqrt(d_i) are the rows of L^-1 A / sqrt(mu)."""
    problem, batch = random_problem(3, n=8, p=20), BlockBatch(((0, 20),))
    recursion = RowByRow(problem, batch)
    rows = recursion.vectors[0] / recursion.scales[0, :, None].sqrt()
    factor = SampleSpace(problem, batch, torch.float64).factor[0]
    expected = torch.linalg.solve(factor, problem.matrix.whole().t()) / problem.mu**0.5
    torch.testing.assert_close(rows, expected, rtol=1e-10, atol=1e-10)


def test_the_smaller_system_is_factorised() -> None:
    problem = random_problem(0, n=10, p=30)
    assert isinstance(matrix_free(problem, BlockBatch(((0, 15), (15, 30)))), SampleSpace)
    assert isinstance(matrix_free(problem, BlockBatch(((0, 6), (6, 12)))), WeightSpace)


def test_columns_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    problem = random_problem(0, n=4, p=45)
    for layout in (Layout((45,)), Layout((45,), 15), Layout((45,), 14)):
        inverse, truth = BlockDiagonal(problem, layout, matrix_free), dense_inverse(problem, layout)
        torch.testing.assert_close(inverse.diagonal(), truth.diagonal(), rtol=1e-9, atol=1e-9)
        product = inverse.product(problem.w0)
        torch.testing.assert_close(product, truth @ problem.w0, rtol=1e-9, atol=1e-9)


def test_float64_where_the_rounding_of_float32_is_not_small_beside_mu() -> None:
    batch = BlockBatch(((0, 100),))
    for lam, dtype in ((1e-7, torch.float64), (1.0, torch.float32)):
        problem = random_problem(0, n=20, p=100, lam=lam, dtype=torch.float32)
        inverse = matrix_free(problem, batch)
        assert isinstance(inverse, SampleSpace)
        assert inverse.factor.dtype == dtype
        truth = dense_inverse(problem).diagonal()
        torch.testing.assert_close(inverse.diagonal()[0].double(), truth, rtol=1e-3, atol=0)


def test_memory_is_that_of_the_smaller_systems() -> None:
    assert matrix_free_memory(Layout((30, 30)), 10) == 8 * 10**2
    assert matrix_free_memory(Layout((30, 30), 15), 10) == 8 * 4 * 10**2
    assert matrix_free_memory(Layout((30, 30), 5), 10) == 8 * 12 * 5**2
