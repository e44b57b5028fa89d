"""Files that are replaced at once: killed at any step, a folder has all old files or all new."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from chita.errors import ChitaError
from chita.files import staging
from chita.files.folder_lock import lock
from chita.files.run_manifest import MANIFEST_FILE, Manifest
from chita.files.staging import COMMITTED, complete, replacing_at_once
from tests.support.messages import naming

NAMES = ("model", "masks", "history")
OLD = {"model": b"old model", "masks": b"old masks", "history": b"old history"}
NEW = {"model": b"new model", "masks": b"new masks"}  # without a history


def write(folder: Path, files: dict[str, bytes]) -> None:
    with lock(folder), replacing_at_once(folder, NAMES, finishes=True) as new:
        for name, content in files.items():
            (new / name).write_bytes(content)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name in NAMES}


def test_old_files_that_are_not_written_again_are_removed(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("of the user")
    write(tmp_path, OLD)
    assert content(tmp_path) == OLD
    write(tmp_path, NEW)
    assert content(tmp_path) == NEW
    assert {path.name for path in tmp_path.iterdir()} == {*NEW, "note", MANIFEST_FILE}
    manifest = Manifest.read(tmp_path)
    assert manifest is not None and manifest.finished and manifest.files.keys() == NEW.keys()


def test_an_old_file_that_the_user_changed_stays(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    (tmp_path / "history").write_bytes(b"changed")
    write(tmp_path, NEW)
    assert content(tmp_path) == NEW | {"history": b"changed"}


def test_an_error_leaves_the_old_files(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    with pytest.raises(ValueError), replacing_at_once(tmp_path, NAMES, finishes=True) as new:
        (new / "model").write_bytes(b"half")
        raise ValueError
    assert content(tmp_path) == OLD
    assert {path.name for path in tmp_path.iterdir()} == {*OLD, MANIFEST_FILE}


class Killed(BaseException):
    """Ends the work as a kill does: no handler of ours runs after it."""


def dying(function: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        if left[0] <= 0:
            raise Killed
        left[0] -= 1
        return function(*arguments, **keywords)

    return call


def test_killed_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the steps that change the folder: renaming, replacing, deleting."""
    seen = []
    for step in range(20):
        folder = tmp_path / str(step)
        folder.mkdir()
        write(folder, OLD)
        left = [step]
        with monkeypatch.context() as patched:
            for name in ("rename", "replace", "unlink"):
                patched.setattr(Path, name, dying(getattr(Path, name), left))
            patched.setattr(staging.shutil, "rmtree", dying(staging.shutil.rmtree, left))
            try:
                write(folder, NEW)
                break
            except Killed:
                pass
        complete(folder)
        seen.append(content(folder))
        manifest = Manifest.read(folder)
        assert manifest is not None and all(manifest.matches(folder / name) for name in seen[-1])
        assert not (folder / COMMITTED).exists()
    assert step > 4
    changed = seen.index(NEW)
    assert seen == [OLD] * changed + [NEW] * (len(seen) - changed)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").write_bytes(b"before")
    (tmp_path / "run" / "model").symlink_to(tmp_path / "elsewhere")
    write(tmp_path / "run", NEW)
    assert (tmp_path / "run" / "model").is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == NEW["model"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(ChitaError, match=naming(str(tmp_path / "none"))),
        replacing_at_once(tmp_path / "none", NAMES, finishes=True),
    ):
        pass


def test_two_commands_complete_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one finds nothing to move once it has the lock."""

    def leave(_: Path) -> None:
        """End as if the process was killed."""

    with monkeypatch.context() as patched:
        patched.setattr(staging, "complete", leave)
        write(tmp_path, NEW)
    assert (tmp_path / COMMITTED).exists()

    def lock_late(folder: Path) -> AbstractContextManager[None]:
        monkeypatch.setattr(staging, "lock", lock)
        complete(folder)
        return lock(folder)

    monkeypatch.setattr(staging, "lock", lock_late)
    complete(tmp_path)
    assert content(tmp_path) == NEW
