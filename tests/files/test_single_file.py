"""Single files that a command writes, beside a run or into its folder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.files import single_file
from chita.files.folder_lock import lock
from chita.files.run_folder import (
    MODEL_FILE,
    STAGE_FILE,
    start_run,
    verified,
)
from chita.files.single_file import adding_file, prepare_file
from tests.support.messages import naming
from tests.support.runs import finished_run


def test_a_file_has_the_name_of_its_kind_and_a_folder_to_be_in(tmp_path: Path) -> None:
    prepare_file(tmp_path / "model.onnx", ".onnx")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "new"), "model.onnx")):
        prepare_file(tmp_path / "new" / "model.onnx", ".onnx")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder.onnx").mkdir()
    for wrong in (tmp_path / "model.pt", tmp_path / "folder.onnx"):
        with pytest.raises(ChitaError, match=naming(".onnx", str(wrong))):
            prepare_file(wrong, ".onnx")


def test_a_file_of_a_run_is_no_place_for_another(tmp_path: Path) -> None:
    finished_run(tmp_path)
    for name in (MODEL_FILE, STAGE_FILE):
        with pytest.raises(ChitaError, match=naming(str(tmp_path / name))):
            prepare_file(tmp_path / name, ".safetensors")
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "run.json"))):
        prepare_file(tmp_path / "run.json", ".json")
    prepare_file(tmp_path / "packed.safetensors", ".safetensors")


def test_a_page_is_not_added_to_a_run_that_begins_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may begin, and be killed, just before the page is written."""
    finished_run(tmp_path)

    def lock_late(folder: Path) -> AbstractContextManager[None]:
        start_run(folder)
        return lock(folder)

    monkeypatch.setattr(single_file, "lock", lock_late)
    page = tmp_path / "report.html"
    with pytest.raises(ChitaError, match=naming(str(tmp_path), "--resume")), adding_file(page):
        page.write_text("page")  # pragma: no cover  # not reached
    assert not page.exists()


def test_a_page_is_added_to_a_finished_run(tmp_path: Path) -> None:
    finished_run(tmp_path)
    page = tmp_path / "report.html"
    with adding_file(page):
        page.write_text("page")
    assert verified(page) == page
    page.write_text("another")
    with pytest.raises(ChitaError, match=naming(str(page), "run.json")):
        verified(page)
