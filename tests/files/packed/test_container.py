import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from chita import ChitaError
from chita.files.packed.container import assemble, is_packed, take_apart
from tests.files.packed.states import small_state
from tests.support.messages import naming

CONTENT = assemble(b"directory's", b"", b"some values")


def with_header(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The file with its header changed, and written as safetensors wants it."""
    length = int.from_bytes(CONTENT[:8], "little")
    header = json.loads(CONTENT[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + CONTENT[8 + length :]


def test_parts_come_back() -> None:
    parts = take_apart(CONTENT)
    assert [bytes(p) for p in (parts.directory, parts.supports, parts.values)] == [
        b"directory's",
        b"",
        b"some values",
    ]
    take_apart(with_header(lambda header: None))


def test_the_library_of_safetensors_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    path.write_bytes(CONTENT)
    with safe_open(path, framework="np") as file:
        assert file.metadata()["version"] == "1"
        assert file.get_tensor("values").tobytes() == b"some values"
    assert is_packed(path)


def test_plain_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    assert not is_packed(path)
    for content in (b"", b"x" * 40, (2**60).to_bytes(8, "little")):
        path.write_bytes(content)
        assert not is_packed(path)
    state = small_state()
    del state["tied"]
    save_file(state, path)
    assert not is_packed(path)
    with pytest.raises(ChitaError, match=naming("chita pack")):
        take_apart(path.read_bytes())


def test_damage_to_either_sign_makes_no_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    for word in (b"chita.packed", b'"supports"', b"__metadata__"):
        assert CONTENT.count(word) == 1
        path.write_bytes(CONTENT.replace(word, word.replace(b"a", b"b").replace(b"u", b"v")))
        assert is_packed(path)
        with pytest.raises(ChitaError):
            take_apart(path.read_bytes())


@pytest.mark.parametrize("change", [
    lambda h: h["__metadata__"].update(version="2"),
    lambda h: h["__metadata__"].update(version=1),
    lambda h: h["__metadata__"].update(format="chita"),
    lambda h: h["__metadata__"].update(digest="0" * 32),
    lambda h: h["__metadata__"].pop("digest"),
    lambda h: h.update(__metadata__=[]),
    lambda h: h.pop("__metadata__"),
    lambda h: h.pop("supports"),
    lambda h: h.update(more=h["supports"]),
    lambda h: h.update(values=[]),
    lambda h: h["values"].update(dtype="I8"),
    lambda h: h["values"].update(shape=[1, 11]),
    lambda h: h["values"].update(shape=[10]),
    lambda h: h["values"].update(shape=["11"]),
    lambda h: h["values"].update(data_offsets=[10, 21]),
    lambda h: h["values"].update(data_offsets=[11, 2**70], shape=[2**70 - 11]),
    lambda h: h["values"].update(data_offsets=[11, 5], shape=[-6]),
    lambda h: h["values"].update(data_offsets=[11.0, 22.0]),
    lambda h: h["values"].update(data_offsets=["11", "22"]),
    lambda h: h["values"].update(data_offsets=[None, None]),
    lambda h: h["values"].update(data_offsets=[]),
    lambda h: (h["directory"].update(data_offsets=[0, 10], shape=[10]),
               h["supports"].update(data_offsets=[10, 11], shape=[1])),
])  # fmt: skip
def test_a_changed_header_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ChitaError):
        take_apart(with_header(change))


@pytest.mark.parametrize("content", [b"", b"1234567", CONTENT[:60], CONTENT[:-1], CONTENT + b"x"])
def test_another_length_is_refused(content: bytes) -> None:
    with pytest.raises(ChitaError):
        take_apart(content)


def test_a_header_that_is_no_object_is_refused() -> None:
    for text in (b"[]", b"7", b"nonsense"):
        with pytest.raises(ChitaError, match=naming("header", "JSON")):
            take_apart(len(text).to_bytes(8, "little") + text)
