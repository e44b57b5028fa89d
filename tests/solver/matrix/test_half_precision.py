"""Half precision: every product within what rounding the entries explains."""

import pytest
import torch

from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.half_precision import HalfTarget, row_scales
from tests.solver.matrix.matrices import (
    ROUNDED,
    ROUNDING,
    P,
    demand_of,
    dense,
    filled,
    numbers,
    picked,
    stored,
)


@pytest.fixture(params=ROUNDED)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_entries_are_rounded_once(kind: str) -> None:
    A = dense()
    found = stored(A, kind).whole()
    error = (found - A.t()).abs() / A.t().abs()
    bound = ROUNDING[kind.split()[1]]
    assert bound / 2 < error.max() <= bound
    # A gather of a gather rounds nothing again.
    index = picked(500)
    gathered = stored(A, kind).columns(index)
    assert torch.equal(gathered.whole(), found[index])
    assert torch.equal(gathered.columns(torch.arange(0, 500, 7)).whole(), found[index[::7]])
    assert torch.equal(stored(A, kind).read(5, 90), found[5:90])


def test_products_are_those_of_the_rounded_entries_in_full_precision(kind: str) -> None:
    matrix: GradientMatrix = stored(dense().float(), kind)
    A, index = matrix.whole().t().double(), picked(1500)
    v, r = numbers(1500, seed=2).float(), numbers(len(A), seed=3).float()
    assert matrix.dtype == torch.float32
    for found, exact in (
        (matrix.combine(index, v), A[:, index] @ v.double()),
        (matrix.adjoint(r), A.t() @ r.double()),
        (matrix.gram(index), A[:, index] @ A[:, index].t()),
    ):
        assert found.dtype == torch.float32
        assert (found - exact).norm() < 1e-5 * exact.norm()


def test_products_are_close_to_those_of_float32(kind: str) -> None:
    A, r = dense().float(), numbers(len(dense()), seed=3).float()
    exact = A.t() @ r
    error = (stored(A, kind).adjoint(r) - exact).norm() / exact.norm()
    assert error < ROUNDING[kind.split()[1]]


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e9, 1e30])
def test_rows_of_any_scale_are_stored_as_well(kind: str, scale: float) -> None:
    # float16 alone reaches from 6e-8 to 65504.
    A = dense()
    A[1::2] *= scale
    A = A.float()
    found = stored(A, kind).whole().t()
    error = (found - A).abs() / A.abs()
    assert error.max() <= ROUNDING[kind.split()[1]] + 1e-7


def test_a_row_of_zeros_stays_one(kind: str) -> None:
    A = dense().float()
    A[3] = 0.0
    found = stored(A, kind).whole()
    assert torch.equal(found[:, 3], torch.zeros(P))
    assert found.isfinite().all()


def test_scales_are_powers_of_two_that_leave_room() -> None:
    columns = torch.tensor([[1.0, -3e38, 0.0, 1e-40], [0.5, 1.0, 0.0, 0.0]])
    scales = row_scales(columns)
    assert torch.equal(scales.log2(), scales.log2().round())
    assert (columns / scales).abs().max() < 2**15


def test_it_takes_half_the_memory() -> None:
    A = dense().float()
    target = HalfTarget(demand_of(A), torch.float16)
    matrix = filled(A, target)
    assert target._stored.untyped_storage().nbytes() == A.numel() * 2
    assert matrix.gathers_fast
