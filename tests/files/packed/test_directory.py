import json
import random
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from chita import ChitaError
from chita.files.packed.container import is_packed
from chita.files.packed.directory import Directory, Entry, read_directory, write_directory
from chita.files.packed.planes import PATTERNS, deflate
from chita.files.packed.read import read_packed
from chita.files.packed.support import Code
from tests.support.messages import naming

GOOD: dict[str, Any] = {
    "tensors": [["a", "F32", [3, 4], ["mask", 5, 2], ["deltas", 1, 3]], ["b", "I64", []]],
    "tied": {"c": "a"},
    "planes": {"F32": [5, 5, 5, 5], "I64": [1] * 8},
}


def stored(content: object) -> memoryview:
    return memoryview(deflate(json.dumps(content).encode(), PATTERNS))


def test_round_trip() -> None:
    codes = (Code("mask", 5, 2), Code("deltas", 1, 3))
    entries = (Entry("a", "F32", (3, 4), codes), Entry("b", "I64", ()))
    directory = Directory(entries, {"c": "a"}, {"F32": (5,) * 4, "I64": (1,) * 8})
    assert read_directory(memoryview(write_directory(directory))) == directory
    assert read_directory(stored(GOOD)) == directory
    assert [entry.values for entry in entries] == [5, 1]


@pytest.mark.parametrize("tensor", [
    ["a"],
    "abc",
    None,
    {"name": "a"},
    [1, "F32", [3, 4]],
    ["a", "F31", [3, 4]],
    ["a", ["F32"], [3, 4]],
    ["a", "F32", [3, -4]],
    ["a", "F32", [3, 4.0]],
    ["a", "F32", [True, 4]],
    ["a", "F32", [3, "4"]],
    ["a", "F32", 12],
    ["a", "F32", [2**62, 2**62]],
    ["a", "F32", [0, 2**70]],
    ["a", "F32", [1] * 65],
    ["a", "F32", [10**4000]],
    ["a", "F32", [3, 4], ["mask", 13, 2]],
    ["a", "F32", [3, 4], ["mask", -1, 2]],
    ["a", "F32", [3, 4], ["mask", 5, -2]],
    ["a", "F32", [3, 4], ["mask", 5]],
    ["a", "F32", [3, 4], ["code", 5, 2]],
    ["a", "F32", [3, 4], ["mask", 5, 2], ["mask", 8, 2]],
    ["a", "F32", [3, 4], ["mask", 5, 2], ["mask", 1, 2], ["mask", 1, 2]],
    ["a", "I32", [3, 4], ["mask", 5, 2]],
    ["b", "F32", [3, 4], ["mask", 5, 2]],
    ["c", "F32", [3, 4], ["mask", 5, 2]],
    ["\x1b[2J", "F32", [3, 4], ["mask", 5, 2]],
    ["\ud800", "F32", [3, 4], ["mask", 5, 2]],
])  # fmt: skip
def test_a_wrong_tensor_is_refused(tensor: object) -> None:
    with pytest.raises(ChitaError):
        read_directory(stored({**GOOD, "tensors": [tensor, GOOD["tensors"][1]]}))


@pytest.mark.parametrize(
    "change",
    [
        {"tensors": {}},
        {"tied": []},
        {"tied": {"c": "d"}},
        {"tied": {"c": 1}},
        {"tied": {"c": "c"}},
        {"tied": {"b": "a"}},
        {"planes": {}},
        {"planes": {"F32": [5, 5, 5, 5]}},
        {"planes": {**GOOD["planes"], "F16": [0, 0]}},
        {"planes": {**GOOD["planes"], "F32": [5, 5, 5]}},
        {"planes": {**GOOD["planes"], "F32": [5, 5, 5, 6]}},
        {"planes": {**GOOD["planes"], "F32": [5, 5, 5, -5]}},
        {"planes": {**GOOD["planes"], "F32": 20}},
        {"more": 1},
    ],
)
def test_a_wrong_part_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ChitaError):
        read_directory(stored({**GOOD, **change}))


def test_other_json_and_a_bomb_are_refused() -> None:
    for content in ([], None, 7, {}):
        with pytest.raises(ChitaError, match=naming("directory")):
            read_directory(stored(content))
    with pytest.raises(ChitaError, match=re.compile(r"deflate.* \d{6} ")):
        read_directory(stored([0] * 10**6))


def test_a_name_that_cannot_be_read_is_not_written() -> None:
    with pytest.raises(ChitaError, match=naming(r"'a\n'")):
        write_directory(Directory((Entry("a\n", "I64", ()),), {}, {"I64": (1,) * 8}))


def peak_bytes(content: bytes) -> int:
    """The most memory that reading a refused directory takes."""
    text = memoryview(deflate(content, PATTERNS))
    tracemalloc.start()
    try:
        with pytest.raises(ChitaError):
            read_directory(text)
        return tracemalloc.get_traced_memory()[1] - len(text)
    finally:
        tracemalloc.stop()


def padded(content: str) -> bytes:
    """JSON with so many random characters behind it that its stream is not refused as a bomb."""
    noise = random.Random(0).randbytes(len(content) // 90).hex()
    return f'{content}"{noise}"'.encode()


@pytest.mark.parametrize(
    "tiny",
    [
        "[],",
        "{},",
        '"",',
        "0,",
        "[[]],",
        '["","F32",[]],',
        '["a","F32",[0]],',
        '["a","F32",[1,1,1,1]],',
    ],
)
@pytest.mark.parametrize("before", ['{"tensors":[', '{"tied":{"a":[', '{"planes":{"F32":[', "["])
def test_a_directory_of_tiny_parts_takes_little_memory(before: str, tiny: str) -> None:
    content = padded(before + tiny * (1_000_000 // len(tiny)))
    assert peak_bytes(content) < 400_000


def test_a_long_header_is_not_one_of_a_packed_file(tmp_path: Path) -> None:
    header = b'{"directory":[' + b"[]," * 1_000_000 + b'[]],"supports":[],"values":[]}'
    path = tmp_path / "long.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    tracemalloc.start()
    try:
        assert not is_packed(path)
        with pytest.raises(ChitaError, match=naming("long.safetensors")):
            read_packed(path)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(header)
    finally:
        tracemalloc.stop()


def test_a_long_name_is_not_written() -> None:
    with pytest.raises(ChitaError, match=naming("name")):
        write_directory(Directory((Entry("a" * 70_000, "I64", ()),), {}, {"I64": (1,) * 8}))
