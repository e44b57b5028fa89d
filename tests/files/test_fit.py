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
