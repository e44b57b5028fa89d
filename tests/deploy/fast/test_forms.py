"""Every form gives what its layer gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from chita.deploy.fast.compact import Compact, live
from chita.deploy.fast.forms import FORMS, Form, swap
from chita.deploy.fast.semi_structured import SemiStructured, is_two_of_four, supported
from chita.deploy.fast.sparse import SparseProduct, SparseSums
from tests.deploy.sparse_models import normal, sparse

ALL_FORMS = [Compact.of, SparseProduct.of, SparseSums.of]
PRODUCTS = [SparseProduct.of, SparseSums.of]


@torch.no_grad()
def check(form: Form, layer: nn.Module, x: Tensor) -> None:
    made = form(layer)
    if made is None:
        return
    wanted = layer(x)
    found = made(x)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("form", ALL_FORMS)
@settings(max_examples=40, deadline=None)
@given(
    sparsity=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    bias=st.booleans(),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    batch=st.lists(st.integers(0, 4), max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_linear_with_any_batch(
    form: Form,
    sparsity: float,
    bias: bool,
    sizes: tuple[int, int],
    batch: list[int],
    dtype: torch.dtype,
) -> None:
    layer = sparse(nn.Linear(*sizes, bias=bias), sparsity).to(dtype)
    check(form, layer, normal(*batch, sizes[0]).to(dtype))


@pytest.mark.parametrize("form", ALL_FORMS)
@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from([1, 2, 3]),
    sparsity=st.sampled_from([0.5, 0.9, 1.0]),
    bias=st.booleans(),
    kernel=st.sampled_from([1, 3]),
    stride=st.integers(1, 2),
    padding=st.sampled_from([0, 1, "same"]),
    groups=st.sampled_from([1, 2]),
    batched=st.booleans(),
    last=st.booleans(),
)
def test_convolutions(
    form: Form,
    kind: int,
    sparsity: float,
    bias: bool,
    kernel: int,
    stride: int,
    padding: Any,
    groups: int,
    batched: bool,
    last: bool,
) -> None:
    build = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[kind]
    stride = 1 if padding == "same" else stride
    layer = sparse(
        build(4, 6, kernel, stride=stride, padding=padding, groups=groups, bias=bias), sparsity
    )
    x = normal(*([2] if batched else []), 4, *[5] * kind)
    if last and batched and kind == 2:
        x = x.to(memory_format=torch.channels_last)
    check(form, layer, x)


def test_a_convolution_of_size_one_is_a_product_and_others_are_not() -> None:
    for form in PRODUCTS:
        assert form(nn.Conv2d(4, 4, 1, stride=2)) is not None
        assert form(nn.Conv2d(4, 4, 1, padding="same")) is not None
        for other in (
            nn.Conv2d(4, 4, 3),
            nn.Conv2d(4, 4, 1, padding=1),
            nn.Conv2d(4, 4, 1, groups=2),
            nn.ConvTranspose2d(4, 4, 1),
            nn.Bilinear(4, 4, 4),
        ):
            assert form(other) is None


def test_a_subclass_is_left_alone() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    layer = sparse(Doubled(8, 8), 0.9)
    assert all(form(layer) is None for form in FORMS.values())


def test_compact_holds_the_live_part_only() -> None:
    layer = nn.Linear(6, 5)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[1, 2] = layer.weight[1, 4] = layer.weight[3, 4] = 1.0
    rows, columns = live(layer.weight)
    assert (rows.tolist(), columns.tolist()) == ([1, 3], [2, 4])
    form = Compact.of(layer)
    assert form is not None and form.inner.weight.tolist() == [[1, 1], [0, 1]]
    check(Compact.of, layer, normal(3, 6))
    assert Compact.of(nn.Linear(6, 5)) is None  # nothing is dead


def test_forms_survive_a_copy_and_a_state_dict() -> None:
    x = normal(3, 16)
    for form in ALL_FORMS:
        made = form(sparse(nn.Linear(16, 16), 0.95))
        other = form(sparse(nn.Linear(16, 16), 0.95))
        assert made is not None and other is not None
        with torch.no_grad():
            assert torch.equal(copy.deepcopy(made)(x), made(x))
            for parameter in [*other.parameters(), *other.buffers()]:
                if parameter.is_floating_point():
                    parameter.zero_()
            assert not torch.equal(other(x), made(x))
            other.load_state_dict(made.state_dict())
            assert torch.equal(other(x), made(x))


def test_swap_replaces_every_name_of_a_module() -> None:
    shared, new = nn.Linear(2, 2), nn.Identity()
    model = nn.Sequential(shared, nn.Sequential(nn.ReLU(), shared))
    assert swap(model, shared, new) is model
    assert model[0] is new and model[1][1] is new
    assert swap(shared, shared, new) is new


@pytest.mark.parametrize(
    ("row", "answer"),
    [([1, 1, 0, 0], True), ([0, 0, 0, 3], True), ([1, 1, 1, 0], False), ([0, 1, 1, 0] * 2, True)],
)
def test_two_of_four(row: list[float], answer: bool) -> None:
    assert is_two_of_four(torch.tensor([row, [0.0] * len(row)])) is answer


def test_two_of_four_goes_along_rows_of_whole_groups() -> None:
    assert not is_two_of_four(torch.zeros(4, 6))
    assert not is_two_of_four(torch.tensor([[0.0, 0, 1, 1], [1, 1, 1, 0]]))


def test_semi_structured_needs_a_gpu() -> None:
    layer = nn.Linear(64, 64, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight.view(-1, 4)[:, 2:] = 0
    assert is_two_of_four(layer.weight) and not supported(layer.weight)
    assert SemiStructured.of(layer) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with sparse tensor cores")
def test_semi_structured_gives_what_dense_gives() -> None:
    layer = nn.Linear(128, 64, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight.view(-1, 4)[:, 2:] = 0
    made = SemiStructured.of(layer)
    if made is None:
        pytest.skip("2:4 does not run on this GPU")
    with torch.no_grad():
        x = torch.randn(3, 32, 128, device="cuda", dtype=torch.bfloat16)
        torch.testing.assert_close(made(x), layer(x))
