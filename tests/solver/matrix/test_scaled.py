"""A in another metric is A with every column divided, in every storage and to every solver."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from chita.solver.algorithm import Layout
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.matrix.scaled import ScaledMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import ALGORITHMS, Solution, solve_problem
from tests.solver.matrix.matrices import EXACT, ROUNDED, N, P, dense, numbers, picked, stored

SCALE = numbers(P, seed=5).exp()


@pytest.fixture(params=[*EXACT, *ROUNDED])
def pair(request: pytest.FixtureRequest) -> tuple[GradientMatrix, Tensor]:
    """A D^-1 in a storage, and as (n, p) numbers."""
    inner = stored(dense(), request.param)
    return ScaledMatrix(inner, SCALE), inner.whole().t() / SCALE


def test_what_is_read_is_scaled(pair: tuple[GradientMatrix, Tensor]) -> None:
    matrix, truth = pair
    index = picked(1500)
    torch.testing.assert_close(matrix.whole(), truth.t())
    torch.testing.assert_close(matrix.read(5, 90), truth.t()[5:90])
    columns = matrix.columns(index)
    torch.testing.assert_close(columns.whole(), truth.t()[index])
    torch.testing.assert_close(
        torch.cat([c.clone() for c in matrix.chunks(index)]), columns.whole()
    )
    again = columns.columns(torch.arange(0, 1500, 7))
    torch.testing.assert_close(again.whole(), truth.t()[index[::7]])
    wider = torch.cat([index, torch.arange(40)]).unique()
    torch.testing.assert_close(matrix.widen(columns, index, wider).whole(), truth.t()[wider])


def test_every_product_is_scaled(pair: tuple[GradientMatrix, Tensor]) -> None:
    matrix, truth = pair
    index, r, d = picked(1500), numbers(N, seed=2), numbers(P, seed=3)
    v, sparse = numbers(1500, seed=4), torch.zeros_like(d)
    sparse[index] = v
    torch.testing.assert_close(matrix.adjoint(r), truth.t() @ r)
    torch.testing.assert_close(matrix.forward(d), truth @ d)
    torch.testing.assert_close(matrix.forward(sparse), truth @ sparse)
    torch.testing.assert_close(matrix.combine(index, v), truth[:, index] @ v)
    torch.testing.assert_close(matrix.gram(index), truth[:, index] @ truth[:, index].t())
    norms = truth[:, index].square().sum(1)
    torch.testing.assert_close(matrix.row_square_norms(index), norms)


def solved(matrix: GradientMatrix, w0: Tensor, name: str, block_size: Any, **options: Any) -> Any:
    problem = Problem.build(matrix, w0, lam=0.03, alpha=0.5)
    found: Solution = solve_problem(
        problem,
        400,
        ALGORITHMS[name],
        options=Options(iterations=8, **options),
        layout=Layout((P // 2, P - P // 2), block_size),
    )
    return found


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("block_size", [None, 1000])
@pytest.mark.parametrize("options", [{}, {"active": 0.0}, {"continuation": 3}])
def test_solvers_see_the_scaled_columns(name: str, block_size: Any, options: Any) -> None:
    A, w0 = dense(), numbers(P, seed=6)
    explicit = solved(HeldMatrix((A / SCALE).t().contiguous()), w0, name, block_size, **options)
    found = solved(ScaledMatrix(stored(A, "held"), SCALE), w0, name, block_size, **options)
    assert torch.equal(found.support, explicit.support)
    torch.testing.assert_close(found.w, explicit.w, rtol=1e-7, atol=1e-9)
    assert found.objective == pytest.approx(explicit.objective)
