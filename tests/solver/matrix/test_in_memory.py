"""What is special about a matrix in memory."""

import pytest
import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.matrix.in_memory import HeldMatrix
from tests.solver.matrix.matrices import dense
from tests.support.messages import naming


@pytest.mark.parametrize("stored", [torch.ones(3), torch.ones(3, 4, dtype=torch.int64)])
def test_anything_but_a_float_matrix_is_an_error(stored: Tensor) -> None:
    with pytest.raises(
        ChitaError, match=naming("A", "float32", "float64", str(tuple(stored.shape)))
    ):
        HeldMatrix(stored)


def test_a_matrix_of_no_rows_gives_empty_products() -> None:
    matrix = HeldMatrix(torch.empty(200_000, 0))
    index = torch.arange(100_000)
    assert matrix.combine(index, torch.ones(100_000)).shape == (0,)
    assert matrix.forward(torch.ones(200_000)).shape == (0,)


def test_what_is_read_is_no_copy() -> None:
    matrix = HeldMatrix(dense().t().contiguous())
    assert matrix.read(10, 30).data_ptr() == matrix.whole()[10:].data_ptr()


def test_gathers_are_fast_where_columns_lie_together() -> None:
    assert HeldMatrix(dense().t().contiguous()).gathers_fast
    assert not HeldMatrix(dense().t()).gathers_fast
