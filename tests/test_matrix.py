import pytest
import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.matrix import CHUNK, GradientMatrix
from chita.storage import HeldMatrix

N, P = 23, CHUNK + 700  # more than one chunk


def dense() -> Tensor:
    return torch.randn(N, P, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def picked(count: int) -> Tensor:
    return torch.randperm(P, generator=torch.Generator().manual_seed(1))[:count].sort().values


@pytest.fixture(params=["columns together", "transposed view", "strided view"])
def matrix(request: pytest.FixtureRequest) -> GradientMatrix:
    A = dense()
    if request.param == "columns together":
        return HeldMatrix(A.t().contiguous())
    if request.param == "transposed view":
        return HeldMatrix(A.t())
    return HeldMatrix(torch.stack([A.t(), A.t()], dim=1).reshape(2 * P, N)[::2])


def test_shape(matrix: GradientMatrix) -> None:
    assert (matrix.n, matrix.p) == (N, P)


@pytest.mark.parametrize("count", [0, 1, 50, 1500, CHUNK + 5, P])
def test_products_over_picked_columns(matrix: GradientMatrix, count: int) -> None:
    A, index = dense(), picked(count)
    A_S = A[:, index]
    v = torch.randn(count, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    d = torch.zeros(P, dtype=torch.float64)
    d[index] = v
    torch.testing.assert_close(matrix.combine(index, v), A_S @ v)
    torch.testing.assert_close(matrix.forward(d), A @ d)
    torch.testing.assert_close(matrix.gram(index), A_S @ A_S.t())
    torch.testing.assert_close(matrix.row_square_norms(index), A_S.square().sum(1))
    assert torch.equal(matrix.columns(index).whole(), A_S.t())
    chunks = list(matrix.chunks(index))
    assert all(len(chunk) <= CHUNK for chunk in chunks)
    assert torch.equal(torch.cat(chunks), A_S.t())


def test_adjoint_and_span(matrix: GradientMatrix) -> None:
    A = dense()
    r = torch.linspace(-1, 1, N, dtype=torch.float64)
    torch.testing.assert_close(matrix.adjoint(r), A.t() @ r)
    for few in (matrix.span(0, 1), matrix.span(3, 20)):
        torch.testing.assert_close(few.adjoint(r), few.whole() @ r)
    part = matrix.span(10, 30)
    assert torch.equal(part.whole(), A.t()[10:30])
    assert part.whole().data_ptr() == matrix.whole()[10:].data_ptr()


@pytest.mark.parametrize(("count", "more"), [(50, 1500), (1, P), (50, 50)])
def test_widened_columns_are_the_same_as_gathered_ones(
    matrix: GradientMatrix, count: int, more: int
) -> None:
    wider = picked(more)
    some = torch.randperm(more, generator=torch.Generator().manual_seed(3))[:count]
    index = wider[some.sort().values]
    widened = matrix.widen(matrix.columns(index), index, wider)
    assert torch.equal(widened.whole(), dense().t()[wider])


def test_products_leave_the_matrix_alone(matrix: GradientMatrix) -> None:
    index = torch.arange(P)
    matrix.row_square_norms(index)
    matrix.gram(index)
    assert torch.equal(matrix.whole().t(), dense())


def test_gram_in_float64_of_a_float32_matrix() -> None:
    A = dense().float()
    matrix, index = HeldMatrix(A.t().contiguous()), picked(1500)
    exact = A[:, index].double() @ A[:, index].double().t()
    assert matrix.gram(index).dtype == torch.float32
    accurate = matrix.gram(index, torch.float64)
    assert accurate.dtype == torch.float64
    torch.testing.assert_close(accurate, exact, rtol=1e-13, atol=1e-11)


def test_a_remembered_gram_is_that_of_its_own_columns() -> None:
    A = dense()
    matrix = HeldMatrix(A.t().contiguous())
    for count in (50, 60, 50):
        A_S = A[:, picked(count)]
        torch.testing.assert_close(matrix.gram(picked(count)), A_S @ A_S.t())


@pytest.mark.parametrize("stored", [torch.ones(3), torch.ones(3, 4, dtype=torch.int64)])
def test_anything_but_a_float_matrix_is_an_error(stored: Tensor) -> None:
    with pytest.raises(ChitaError, match="A must be a float32 or float64 matrix, got shape"):
        HeldMatrix(stored)


def test_a_matrix_of_no_rows_gives_empty_products() -> None:
    matrix = HeldMatrix(torch.empty(200_000, 0))
    index = torch.arange(100_000)
    assert matrix.combine(index, torch.ones(100_000)).shape == (0,)
    assert matrix.forward(torch.ones(200_000)).shape == (0,)
