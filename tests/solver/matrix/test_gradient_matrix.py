"""What solvers ask of A, in every kind of storage, against dense algebra."""

import pytest
import torch

from chita.solver.matrix.gradient_matrix import CHUNK, GradientMatrix, add_lower_gram
from tests.solver.matrix.matrices import EXACT, N, P, dense, numbers, picked, stored


@pytest.fixture(params=EXACT)
def matrix(request: pytest.FixtureRequest) -> GradientMatrix:
    return stored(dense(), request.param)


def test_shape(matrix: GradientMatrix) -> None:
    assert (matrix.n, matrix.p) == (N, P)


@pytest.mark.parametrize("count", [0, 1, 50, 1500, CHUNK + 5, P])
def test_products_over_picked_columns(matrix: GradientMatrix, count: int) -> None:
    A, index = dense(), picked(count)
    A_S = A[:, index]
    v = numbers(count, seed=2)
    d = torch.zeros(P, dtype=torch.float64)
    d[index] = v
    torch.testing.assert_close(matrix.combine(index, v), A_S @ v)
    torch.testing.assert_close(matrix.forward(d), A @ d)
    torch.testing.assert_close(matrix.gram(index), A_S @ A_S.t())
    torch.testing.assert_close(matrix.row_square_norms(index), A_S.square().sum(1))
    chunks = [chunk.clone() for chunk in matrix.chunks(index)]
    assert all(len(chunk) <= matrix.piece for chunk in chunks)
    assert torch.equal(torch.cat([A.t()[:0], *chunks]), A_S.t())


@pytest.mark.parametrize("count", [0, 1, 50, P])
def test_gathered_columns_are_a_matrix_of_their_own(matrix: GradientMatrix, count: int) -> None:
    index = picked(count)
    A_S, gathered = dense()[:, index], matrix.columns(index)
    assert (gathered.n, gathered.p) == (N, count)
    assert torch.equal(gathered.whole(), A_S.t())
    some = torch.arange(0, count, 3)
    again = gathered.columns(some)
    assert torch.equal(again.whole(), A_S[:, some].t())
    assert torch.equal(gathered.whole(), A_S.t())


def test_adjoint(matrix: GradientMatrix) -> None:
    r = torch.linspace(-1, 1, N, dtype=torch.float64)
    torch.testing.assert_close(matrix.adjoint(r), dense().t() @ r)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (3, 20), (CHUNK - 1, CHUNK + 1), (0, P)])
def test_columns_in_a_row_are_read_as_they_are(
    matrix: GradientMatrix, start: int, stop: int
) -> None:
    assert torch.equal(matrix.read(start, stop), dense().t()[start:stop])


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


def test_a_remembered_gram_is_that_of_its_own_columns(matrix: GradientMatrix) -> None:
    A = dense()
    for count in (50, 60, 50):
        A_S = A[:, picked(count)]
        torch.testing.assert_close(matrix.gram(picked(count)), A_S @ A_S.t())


@pytest.mark.parametrize("kind", EXACT)
def test_gram_in_float64_of_a_float32_matrix(kind: str) -> None:
    A = dense().float()
    matrix, index = stored(A, kind), picked(1500)
    exact = A[:, index].double() @ A[:, index].double().t()
    assert matrix.gram(index).dtype == torch.float32
    accurate = matrix.gram(index, torch.float64)
    assert accurate.dtype == torch.float64
    torch.testing.assert_close(accurate, exact, rtol=1e-13, atol=1e-11)


@pytest.mark.parametrize("shape", [(7, 11), (7, 1), (3, 7, 11), (2, 0, 4), (2, 3, 7, 5)])
def test_the_lower_triangle_is_added_to_what_there_was(shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    before = numbers(*shape[:-2], shape[-1], shape[-1], seed=1)
    total = before.clone()
    add_lower_gram(total, x)
    torch.testing.assert_close(total.tril(), (before + x.mT @ x).tril())
