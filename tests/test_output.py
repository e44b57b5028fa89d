from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.output import prepare_folder


def test_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ChitaError, match="cannot write to the output folder"):
        prepare_folder(tmp_path / "file" / "run")
