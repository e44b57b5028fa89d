"""Calling a model with an example, and comparing outputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from chita.deploy.example_input import agrees, arrays_of, check_example, difference
from chita.errors import ChitaError
from chita.model.forward import call
from tests.support.messages import naming


def test_a_tensor_a_tuple_and_keywords() -> None:
    layer = nn.Bilinear(2, 3, 4)
    x, y = torch.randn(5, 2), torch.randn(5, 3)
    wanted = layer(x, y)
    assert torch.equal(call(layer, (x, y)), wanted)
    assert torch.equal(call(layer, {"input1": x, "input2": y}), wanted)
    assert torch.equal(call(nn.ReLU(), x), x.relu())


def test_a_difference_is_in_units_of_the_largest_entry() -> None:
    wanted = {"a": torch.tensor([10.0, -20.0]), "b": (torch.tensor([1.0]),)}
    found = {"a": torch.tensor([10.0, -20.2]), "b": (torch.tensor([1.02]),)}
    assert difference(wanted, wanted) == 0
    assert difference(found, wanted) == pytest.approx(0.02)
    assert difference([torch.ones(3)], torch.ones(3)) == 0
    assert difference(torch.ones(2), torch.ones(3)) == float("inf")


def test_values_that_are_not_finite_must_be_the_same() -> None:
    nan, inf = float("nan"), float("inf")
    wanted = torch.tensor([1.0, nan, inf])
    assert difference(wanted.clone(), wanted) == 0
    assert difference(torch.tensor([1.0, 0.0, inf]), wanted) == inf
    assert difference(torch.tensor([1.0, nan, -inf]), wanted) == inf
    assert difference(torch.tensor([nan, nan, inf]), wanted) == inf


def test_rounding_passes_and_a_fault_does_not() -> None:
    draw = torch.Generator().manual_seed(0)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = torch.randn(50, 800, generator=draw, dtype=torch.float64).to(dtype)
        w = torch.randn(40, 800, generator=draw, dtype=torch.float64).to(dtype)
        wanted = x @ w.T
        assert agrees(x.flip(1) @ w.flip(1).T, wanted)
        w[3, 5] = 20
        assert not agrees(x @ w.T, wanted)
    assert agrees(torch.tensor([3]), torch.tensor([3]))
    assert not agrees(torch.tensor([3]), torch.tensor([4]))


def test_an_example_without_tensors_is_named() -> None:
    with pytest.raises(ChitaError, match=naming("example", "m.onnx")):
        check_example(nn.Linear(4, 3), "m.onnx")


def test_an_example_that_does_not_fit_is_named() -> None:
    with pytest.raises(ChitaError, match=naming("example", "(2, 5)")):
        check_example(nn.Linear(4, 4), torch.ones(2, 5))


class Silent(nn.Module):
    """Returns a text in place of tensors."""

    def forward(self, x: torch.Tensor) -> str:
        return f"{len(x)} samples"


@pytest.mark.parametrize(
    ("model", "samples"), [(nn.Linear(4, 3), 0), (nn.Linear(4, 0), 2), (Silent(), 2)]
)
def test_outputs_without_entries_are_refused(model: nn.Module, samples: int) -> None:
    """Any two models would agree on them, so that a check of an exported file checked nothing."""
    with pytest.raises(ChitaError, match=naming("example", "sample")):
        check_example(model, torch.ones(samples, 4))


def test_arrays_are_contiguous() -> None:
    first, second = arrays_of((torch.arange(6.0).view(2, 3).t(), torch.ones(2).half()))
    assert first.flags["C_CONTIGUOUS"] and first[2].tolist() == [2.0, 5.0]
    assert second.dtype == "float16"


def test_a_type_that_numpy_lacks_is_named() -> None:
    with pytest.raises(ChitaError, match=naming("example", "torch.float32", "torch.bfloat16")):
        arrays_of(torch.ones(2).bfloat16())
