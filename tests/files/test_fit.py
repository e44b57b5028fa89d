import re

import pytest
import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.files.fit import NAMED, check_fit
from tests.support.messages import naming


def tensors(*names: str) -> dict[str, Tensor]:
    return {name: torch.zeros(2, 3) for name in names}


def test_the_same_names_and_shapes_fit_in_any_order_and_type() -> None:
    found = {name: tensor.half() for name, tensor in tensors("b", "a").items()}
    check_fit(tensors("a", "b"), found, "file")


def test_what_is_missing_and_what_is_too_much_is_named() -> None:
    with pytest.raises(
        ChitaError,
        match=naming("file", "a, c", re.compile(r"\bx$")),
    ):
        check_fit(tensors("a", "b", "c"), tensors("b", "x"), "file")
    with pytest.raises(ChitaError, match=naming("file", "x", without="missing")):
        check_fit(tensors("a"), tensors("a", "x"), "file")


def test_only_so_many_are_named() -> None:
    names = [f"layer{number:02}" for number in range(NAMED + 5)]
    with pytest.raises(ChitaError, match=rf"\blayer00, .*{names[NAMED - 1]}\D*\b5\b"):
        check_fit(tensors(*names), {}, "file")
    with pytest.raises(ChitaError, match=rf"\blayer00, .*{names[NAMED - 1]}\D*$"):
        check_fit(tensors(*names[:NAMED]), {}, "file")


def test_another_shape_is_named() -> None:
    found = {**tensors("a"), "b": torch.zeros(3, 2)}
    with pytest.raises(ChitaError, match=naming("file", "'b'", "(3, 2)", "(2, 3)")):
        check_fit(tensors("a", "b"), found, "file")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.complex64])
def test_values_of_another_kind_are_refused(dtype: torch.dtype) -> None:
    """Quantized or complex values would be cast in silence."""
    found = {**tensors("a"), "b": torch.zeros(2, 3, dtype=dtype)}
    with pytest.raises(ChitaError, match=naming("file", "b", str(dtype), "torch.float32")):
        check_fit(tensors("a", "b"), found, "file")
    with pytest.raises(ChitaError, match=naming("file", "b", str(dtype), "torch.float32")):
        check_fit(found, tensors("a", "b"), "file")


def test_other_widths_of_one_kind_fit() -> None:
    wanted = {"a": torch.zeros(2, dtype=torch.int64), "b": torch.zeros(2, dtype=torch.float32)}
    found = {"a": torch.zeros(2, dtype=torch.int32), "b": torch.zeros(2, dtype=torch.bfloat16)}
    check_fit(wanted, found, "file")
