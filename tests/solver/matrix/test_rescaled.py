"""A times a power of two, in every storage."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from chita.solver.algorithm import Layout
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.matrix.scaled import RescaledMatrix, ordinary
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.ranks import ALONE, Ranks, joined_ranks
from chita.solver.solve import ALGORITHMS, Solution, solve_problem
from tests.solver.matrix.matrices import EXACT, ROUNDED, N, P, dense, numbers, picked, stored
from tests.support.gloo import on_ranks

TINY = 2.0**-70


@pytest.fixture(params=[*EXACT, *ROUNDED])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_every_product_is_that_of_the_scaled_matrix(kind: str) -> None:
    inner = stored(dense(), kind)
    matrix, truth = RescaledMatrix(inner, 4.0), inner.whole().t() * 4.0
    index, r, d, v = picked(1500), numbers(N, seed=2), numbers(P, seed=3), numbers(1500, seed=4)
    torch.testing.assert_close(matrix.whole(), truth.t())
    columns = matrix.columns(index)
    torch.testing.assert_close(columns.whole(), truth.t()[index])
    wider = torch.cat([index, torch.arange(40)]).unique()
    torch.testing.assert_close(matrix.widen(columns, index, wider).whole(), truth.t()[wider])
    torch.testing.assert_close(matrix.adjoint(r), truth.t() @ r)
    torch.testing.assert_close(matrix.forward(d), truth @ d)
    torch.testing.assert_close(matrix.combine(index, v), truth[:, index] @ v)
    torch.testing.assert_close(matrix.gram(index), truth[:, index] @ truth[:, index].t())


def test_the_largest_entry_decides(kind: str) -> None:
    for factor in (TINY, 1.0, 1 / TINY):
        matrix = stored(dense() * factor, kind)
        largest = float(matrix.whole().abs().max())
        scaled, s = ordinary(matrix)
        if factor == 1:
            assert scaled is matrix
            assert s == 1.0
        else:
            assert matrix.largest_entry() == largest
            assert 0.5 <= largest * s < 1
            assert float(scaled.whole().abs().max()) == largest * s


def test_a_pass_over_a_slow_storage_stops_when_it_is_ordinary() -> None:
    class Counted(GradientMatrix):
        reads = 0

        def read(self, start: int, stop: int) -> Tensor:
            self.reads += 1
            return torch.full((stop - start, self.n), 1.0 if self.reads > 2 else 0.0)

        def columns(self, index: Tensor) -> GradientMatrix:
            raise NotImplementedError

    matrix = Counted(2, 10 * P, torch.float32, torch.device("cpu"))
    assert matrix.largest_entry() == matrix.largest_entry() == 1.0
    assert matrix.reads == 3


@pytest.mark.parametrize(
    ("largest", "beside"), [(0.0, 1e-30), (math.nan, 1.0), (1.0, 1e-30), (1e-30, 1.0)]
)
def test_what_is_left_as_it_is(largest: float, beside: float) -> None:
    matrix = HeldMatrix(torch.full((3, 2), largest))
    assert ordinary(matrix, beside) == (matrix, 1.0)


def test_no_columns() -> None:
    assert HeldMatrix(torch.zeros(0, 3)).largest_entry() == 0.0
    assert HeldMatrix(torch.zeros(3, 0)).largest_entry() == 0.0


@pytest.mark.parametrize("block_size", [None, 1000])
def test_solvers_find_the_same_in_tiny_units(kind: str, block_size: int | None) -> None:
    w0 = numbers(P, seed=6)
    plain, tiny = (
        solve_problem(
            Problem.build(stored(dense() * s, kind), w0, lam=0.03 * s * s, alpha=0.5 * s),
            400,
            ALGORITHMS["bso"],
            options=Options(iterations=4),
            layout=Layout((P,), block_size),
        )
        for s in (1.0, TINY)
    )
    assert torch.equal(tiny.support, plain.support)
    torch.testing.assert_close(tiny.w, plain.w, rtol=1e-7, atol=1e-9)
    assert tiny.objective / TINY**2 == pytest.approx(plain.objective)


def tiny_solution(ranks: Ranks, first: int, last: int) -> Solution:
    """Over the columns [first, last) of a matrix whose second half is zero."""
    stored = TINY * numbers(40, 8).float()
    stored[20:] = 0.0
    w0 = numbers(40, seed=1).float()[first:last]
    matrix = HeldMatrix(stored[first:last], ranks)
    problem = Problem.build(matrix, w0, lam=0.03 * TINY**2, alpha=0.5 * TINY)
    return solve_problem(problem, 12, ALGORITHMS["bso"], options=Options(iterations=4))


def on_rank(rank: int) -> tuple[Tensor, float]:
    with joined_ranks() as ranks:
        solution = tiny_solution(ranks, 20 * rank, 20 * rank + 20)
        return ranks.gather(solution.w), solution.objective


def test_a_rank_without_entries_uses_the_units_of_the_others() -> None:
    truth = tiny_solution(ALONE, 0, 40)
    for outcome in on_ranks(2, on_rank):
        if isinstance(outcome, Exception):
            raise outcome
        w, objective = outcome
        torch.testing.assert_close(w, truth.w, rtol=1e-4, atol=1e-5)
        assert objective == pytest.approx(truth.objective, rel=1e-4)
