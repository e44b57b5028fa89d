"""The precision in which the solvers compute, and the settings of the caller afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from chita.solver.precision import own_precision


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


def test_autocast_is_off_inside() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        with own_precision():
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("given", ["highest", "high", "medium"])
def test_float32_products_have_full_precision_inside(given: str) -> None:
    torch.set_float32_matmul_precision(given)
    with pytest.raises(KeyError), own_precision():
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cuda.matmul.allow_tf32
        raise KeyError
    assert torch.get_float32_matmul_precision() == given
    assert torch.backends.cuda.matmul.allow_tf32 == (given != "highest")


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"),
    reason="only newer versions of torch set the backends one by one",
)
def test_a_setting_of_one_backend_is_restored() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with own_precision():
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
