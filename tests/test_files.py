from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.files import write_whole


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"a long first version", b"short"):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "nowhere" / "file"):
        with pytest.raises(ChitaError, match=f"cannot write {path}"):
            write_whole(path, b"content")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]
