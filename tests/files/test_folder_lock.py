import threading
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.files.folder_lock import lock
from tests.support.messages import naming
from tests.support.processes import quick_context


def try_lock(folder: Path, outcome: list[str]) -> None:
    try:
        with lock(folder):
            outcome.append("")
    except ChitaError as error:
        outcome.append(str(error))


def in_thread(folder: Path) -> str:
    outcome: list[str] = []
    thread = threading.Thread(target=try_lock, args=(folder, outcome))
    thread.start()
    thread.join()
    return outcome[0]


def hold(folder: Path, connection: object) -> None:
    with lock(folder):
        connection.send("held")  # type: ignore[attr-defined]
        connection.recv()  # type: ignore[attr-defined]


def test_one_thread_may_take_it_twice_and_another_not(tmp_path: Path) -> None:
    with lock(tmp_path):
        with lock(tmp_path):
            assert str(tmp_path) in in_thread(tmp_path)
        assert str(tmp_path) in in_thread(tmp_path)
    assert in_thread(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_the_folder_has_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with lock(tmp_path / "folder"):
        assert str(tmp_path / "link") in in_thread(tmp_path / "link")


@pytest.mark.slow
def test_a_killed_process_releases_it(tmp_path: Path) -> None:
    context = quick_context()
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(tmp_path, theirs))
    process.start()
    assert ours.recv() == "held"
    with pytest.raises(ChitaError, match=naming(str(tmp_path))), lock(tmp_path):
        pass
    process.kill()
    process.join()
    with lock(tmp_path):
        pass
