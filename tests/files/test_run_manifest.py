import json
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.files.run_manifest import MANIFEST_FILE, Manifest, file_digest
from tests.support.messages import naming


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    assert Manifest.read(tmp_path) is None
    for manifest in (Manifest(False, {}), Manifest(True, {"b": "12", "a": "34"})):
        manifest.write(tmp_path)
        assert Manifest.read(tmp_path) == manifest


def test_a_file_matches_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    manifest = Manifest(True, {"file": str(file_digest(path)), "none": "12"})
    assert manifest.matches(path)
    path.write_bytes(b"Content")
    assert not manifest.matches(path)
    assert not manifest.matches(tmp_path / "none")  # there is no such file
    assert not manifest.matches(tmp_path / "other")  # neither in the folder nor in the list
    assert file_digest(tmp_path) is None


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    Manifest(True, {"model.safetensors": "0123456789abcdef"}).write(tmp_path)
    path = tmp_path / MANIFEST_FILE
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = Manifest.read(tmp_path)
        except ChitaError as error:
            assert str(path) in str(error)
        else:  # a change between the tokens, which changes nothing
            assert found == Manifest(True, {"model.safetensors": "0123456789abcdef"})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"format": "chita.run"}',
        b"[" * 100_000,
        b" " * (2**20 + 1),
        json.dumps(
            {"format": "chita.run", "version": 1, "finished": True, "files": {"a": 1}, "digest": ""}
        ).encode(),
    ],
)
def test_other_content_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).write_bytes(content)
    with pytest.raises(ChitaError, match=naming(str(tmp_path / MANIFEST_FILE))):
        Manifest.read(tmp_path)
