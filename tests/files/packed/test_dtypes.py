import numpy as np
import pytest
import torch

from chita import ChitaError
from chita.files.packed import dtypes
from tests.support.messages import naming


@pytest.mark.parametrize("name", sorted(dtypes.NAMES))
def test_numbers_of_every_type_keep_their_bytes(name: str) -> None:
    numbers = np.random.default_rng(0).integers(0, 2, (6, dtypes.width(name)), dtype=np.uint8)
    tensor = dtypes.to_tensor(numbers.copy(), name, (2, 3))
    assert tensor.shape == (2, 3) and dtypes.dtype_name(tensor.dtype) == name
    assert np.array_equal(dtypes.to_bytes(tensor), numbers)
    assert np.array_equal(dtypes.to_bytes(tensor[0, 1]), numbers[1:2])


@pytest.mark.parametrize(
    ("name", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)]
)
def test_the_word_of_negative_zero(name: str, dtype: torch.dtype) -> None:
    numbers = dtypes.to_bytes(torch.tensor([-0.0, 0.0], dtype=dtype))
    words = dtypes.to_words(numbers, name)
    assert words.tolist() == [dtypes.negative_zero(name), 0]
    assert np.array_equal(dtypes.from_words(words), numbers)


def test_a_view_is_stored_as_it_reads() -> None:
    numbers = torch.tensor([[1 + 2j, 3 + 4j], [5 + 6j, 7 + 8j]])
    for view in (numbers.T, numbers.conj(), numbers.conj().imag):
        plain = dtypes.to_tensor(
            dtypes.to_bytes(view), dtypes.dtype_name(view.dtype), tuple(view.shape)
        )
        assert torch.equal(plain, view)


def test_unknown_types_and_truth_values_are_refused() -> None:
    with pytest.raises(ChitaError, match=naming(torch.qint8, "F64", "BOOL")):
        dtypes.dtype_name(torch.qint8)
    with pytest.raises(ChitaError, match=naming(0, 1)):
        dtypes.to_tensor(np.array([[0], [2]], dtype=np.uint8), "BOOL", (2,))
