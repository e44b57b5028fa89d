import json
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from chita import ChitaError
from chita.files.packed.container import assemble, take_apart
from chita.files.packed.dtypes import to_bytes
from chita.files.packed.planes import PATTERNS, deflate, encode, inflate
from chita.files.packed.read import read_packed, unpack
from chita.files.packed.write import pack
from tests.files.packed.states import small_state
from tests.support.messages import naming

CONTENT = pack(small_state())


def forged(change: Callable[[dict[str, Any]], object], **parts: bytes) -> bytes:
    """A file with another directory, and the right digest."""
    found = take_apart(CONTENT)
    directory = json.loads(inflate(found.directory, 10**6))
    change(directory)
    stored = deflate(json.dumps(directory).encode(), PATTERNS)
    return assemble(
        stored,
        parts.get("supports", bytes(found.supports)),
        parts.get("values", bytes(found.values)),
    )


def test_an_unchanged_directory_is_read() -> None:
    assert unpack(forged(lambda directory: None))[1].keys() == small_state().keys()


@pytest.mark.parametrize("change", [
    lambda d: d["tensors"][0].__setitem__(2, [10**6, 10**6]),
    lambda d: d["tensors"][0].__setitem__(2, [40, 51]),
    lambda d: d["tensors"][0].__setitem__(1, "F16"),
    lambda d: d["tensors"][0][3].__setitem__(0, "mask"),
    lambda d: d["tensors"][0][3].__setitem__(1, d["tensors"][0][3][1] + 1),
    lambda d: d["tensors"][0][3].__setitem__(2, d["tensors"][0][3][2] + 1),
    lambda d: d["tensors"][3].__setitem__(2, [10**12]),
    lambda d: d["tensors"].append(["new", "F32", [10**12], ["deltas", 0, 0]]),
    lambda d: d["tensors"].append(["new", "F32", [10**12], ["mask", 0, 0]]),
    lambda d: d["tensors"].append(["new", "F32", [10**12]]),
    lambda d: d["tensors"].append(["new", "F32", [1]]),
    lambda d: d["tensors"].reverse(),
    lambda d: d["tensors"].pop(),
    lambda d: d["planes"]["F32"].__setitem__(0, d["planes"]["F32"][0] - 1),
    lambda d: d["planes"].update(F32=d["planes"]["F32"][::-1]),
])  # fmt: skip
def test_a_forged_directory_is_refused_without_memory(
    change: Callable[[dict[str, Any]], object],
) -> None:
    content = forged(change)
    tracemalloc.start()
    try:
        with pytest.raises(ChitaError):
            unpack(content)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_places_that_are_taken_twice_are_refused() -> None:
    """The codes of the values and of the negative zeros of 'signed' are the same one."""
    state = {"signed": small_state()["signed"]}
    parts = take_apart(pack(state))
    directory = json.loads(inflate(parts.directory, 10**6))
    tensor = directory["tensors"][0]
    first = bytes(parts.supports)[: tensor[3][2]]
    tensor[4] = tensor[3]
    stored = deflate(json.dumps(directory).encode(), PATTERNS)
    with pytest.raises(ChitaError, match=naming("signed", -0.0)):
        unpack(assemble(stored, first + first, bytes(parts.values)))


def test_bytes_left_over_are_refused() -> None:
    for part in ("supports", "values"):
        whole = bytes(getattr(take_apart(CONTENT), part))
        for other in (whole + b"x", whole[:-1]):
            with pytest.raises(ChitaError, match=naming("directory", len(other))):
                unpack(forged(lambda d: None, **{part: other}))


def test_no_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in (
        (tmp_path, re.compile("folder|directory")),
        (tmp_path / "absent", re.compile("exist|no such file")),
        (tmp_path / "pipe", re.compile("plain|regular")),
    ):
        with pytest.raises(ChitaError, match=naming(str(path), why)):
            read_packed(path)


def test_reading_runs_nothing(tmp_path: Path) -> None:
    """A pickle under the right name is no packed file."""
    path = tmp_path / "file.safetensors"
    torch.save(small_state(), path)
    with pytest.raises(ChitaError, match=naming("file.safetensors", "safetensors")):
        read_packed(path)


def test_a_place_in_both_sets_is_refused_whatever_its_value() -> None:
    """A value may be stored that is zero: it then looks like a place of neither set."""
    weights = torch.zeros(8000)
    weights[::500], weights[7::500] = 3.0, -0.0
    found = take_apart(pack({"w": weights}))
    directory = json.loads(inflate(found.directory, 10**6))
    ((_, _, _, values, _),) = directory["tensors"]
    code = bytes(found.supports)[: values[2]]
    directory["tensors"][0][4] = values  # the set of -0.0 is the set of the values
    for stored in (3.0, 0.0):
        numbers = torch.full((values[1],), stored)
        planes = encode(to_bytes(numbers))
        directory["planes"]["F32"] = [len(plane) for plane in planes]
        content = assemble(
            deflate(json.dumps(directory).encode(), PATTERNS), code + code, b"".join(planes)
        )
        with pytest.raises(ChitaError, match=naming("'w'", "-0.0")):
            unpack(content)
