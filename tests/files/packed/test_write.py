import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import chita
from chita import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.files.packed.read import unpack
from chita.files.packed.write import pack
from tests.files.packed.slow_reader import read_slowly
from tests.files.packed.states import FLOATS, entries, same_bits, small_state, sparse
from tests.support.messages import naming


def forms(state: dict[str, Tensor]) -> dict[str, str]:
    return {entry.name: entry.form for entry in unpack(pack(state))[0].entries}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=240), st.sampled_from(FLOATS), st.integers(0, 9))
def test_any_bits_come_back(numbers: list[int], dtype: torch.dtype, zeros: int) -> None:
    """NaNs with a payload, infinities, subnormal numbers and zeros of both signs among them."""
    content = [byte for n in numbers for byte in (n, 0, n // 2, n) + (0,) * 4 * zeros]
    tensor = torch.tensor(content, dtype=torch.uint8).view(dtype)
    assert same_bits(unpack(pack({"w": tensor}))[1], {"w": tensor})


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_keep_their_bits(dtype: torch.dtype) -> None:
    special = torch.tensor([float("nan"), -float("nan"), float("inf"), -float("inf"), -0.0, 1e-40])
    tensor = torch.cat([special.to(dtype), torch.zeros(500, dtype=dtype)])
    payload = tensor[:1].view(torch.uint8).clone()
    payload[0] |= 1  # in the mantissa of the first NaN
    tensor[:1] = payload.view(dtype)
    assert forms({"w": tensor}) == {"w": "deltas"}
    assert same_bits(unpack(pack({"w": tensor}))[1], {"w": tensor})


def test_a_reader_after_the_description_finds_the_same(tmp_path: Path) -> None:
    state = small_state() | {"empty": torch.empty(0, 3), "zero": torch.zeros(70, dtype=torch.half)}
    chita.save(state, tmp_path / "file.safetensors")
    assert read_slowly(tmp_path / "file.safetensors") == {n: entries(t) for n, t in state.items()}


def test_each_tensor_takes_the_smallest_form() -> None:
    densities = {
        0.0: "deltas",
        0.02: "deltas",
        0.1: "deltas",
        0.4: "mask",
        0.9: "mask",
        1.0: "dense",
    }
    for dtype in FLOATS:
        state = {str(d): sparse((60, 50), d).to(dtype) for d in densities}
        assert forms(state) == {str(d): form for d, form in densities.items()}
    assert forms({"i": torch.zeros(99, dtype=torch.int32), "d": torch.zeros(99).double()}) == {
        "i": "dense",
        "d": "dense",
    }


def test_negative_zeros_cost_a_bit_each_at_most() -> None:
    """What a mask leaves of negative weights when it is multiplied with them."""
    weights = sparse((100, 100), 1.0)
    masked = weights * (sparse((100, 100), 0.02, seed=1) != 0)
    assert same_bits(unpack(pack({"w": masked}))[1], {"w": masked})
    assert len(pack({"w": masked})) - len(pack({"w": masked + 0.0})) <= masked.numel() / 8 + 40


def test_layouts_of_memory_and_shapes() -> None:
    base = sparse((12, 10), 0.3)
    state = {
        "turned": base.T,
        "strided": base[::2, 1:7:3],
        "expanded": base[:1].expand(4, 10),
        "channels": sparse((2, 3, 4, 4), 0.2).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(0.0),
        "empty": torch.empty(0, 5),
        "gradient": nn.Parameter(base),
    }
    assert same_bits(unpack(pack(state))[1], state)
    assert unpack(pack({}))[1] == {}


def test_tied_tensors_are_stored_once_and_stay_tied() -> None:
    state = small_state()
    found = unpack(pack(state))[1]
    assert same_bits(found, state)
    assert found["tied"] is found["rare"]
    alone = {name: tensor for name, tensor in state.items() if name != "tied"}
    assert len(pack(state)) <= len(pack(alone)) + 32
    for name, tensor in unpack(pack(alone))[1].items():  # nor do others share their memory
        assert tensor.untyped_storage().nbytes() == alone[name].nbytes


def test_the_same_weights_give_the_same_file() -> None:
    assert pack(small_state()) == pack(small_state())


def test_a_pruned_network_keeps_the_promised_ratios(tmp_path: Path) -> None:
    for sparsity, most in ((0.9, 0.14), (0.98, 0.04)):
        state = {f"layer{i}.weight": sparse((64, 64, 3, 3), 1 - sparsity, seed=i) for i in range(6)}
        state |= {f"layer{i}.bn.{n}": sparse((64,), 1.0, seed=i) for i in range(6) for n in "abcd"}
        dense, packed = tmp_path / "dense.safetensors", tmp_path / "packed.safetensors"
        save_checkpoint(state, dense)
        chita.save(state, packed)
        assert packed.stat().st_size <= most * dense.stat().st_size


def test_what_cannot_be_packed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    for odd in (torch.eye(3).to_sparse(), torch.empty(3, device="meta"), "text"):
        with pytest.raises(ChitaError, match=naming("'odd'")):
            chita.save({"odd": odd}, path)  # type: ignore[dict-item]
    with pytest.raises(ChitaError, match=naming("'weight'")):
        chita.save(nn.LazyLinear(3), path)
    with pytest.raises(ChitaError, match=naming("nowhere/file.safetensors")):
        chita.save(small_state(), tmp_path / "nowhere" / "file.safetensors")
    assert not list(tmp_path.iterdir())


def test_arguments_that_are_no_state_and_no_path(tmp_path: Path) -> None:
    path, model = tmp_path / "file.safetensors", nn.Linear(3, 2)
    result = chita.prune(model, [], sparsity=0.5, method="magnitude", progress=False)
    cases: list[tuple[Any, Any, str]] = [
        ([1], path, naming("model", "torch.nn.Module", "list")),
        (result, path, naming("model", "PruneResult")),
        (str(path), model, naming("model", "path", "str")),
        ({1: torch.ones(2)}, path, naming(re.compile("names?"), 1)),
        (model, None, naming("path", "NoneType")),
    ]
    for state, where, message in cases:
        with pytest.raises(ChitaError, match=message):
            chita.save(state, where)
    assert not list(tmp_path.iterdir())
