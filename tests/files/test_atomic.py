import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.files.atomic import (
    UNFINISHED,
    regular_target,
    sweep,
    write_csv,
    write_json,
    write_whole,
)
from tests.support.messages import naming


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"a long first version", b"short"):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "nowhere" / "file"):
        with pytest.raises(ChitaError, match=naming(str(path))):
            write_whole(path, b"content")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_rows_and_records_can_be_read_again(tmp_path: Path) -> None:
    rows = [
        {"method": "MP, uniform", "loss": 1 / 3, "paper": None},
        {"method": 'by "size"', "loss": 1e-9, "paper": 2.5},
    ]
    write_csv(tmp_path / "a.csv", rows)
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == ["method", "loss", "paper"]
    assert [line["method"] for line in read] == [row["method"] for row in rows]
    assert [float(line["loss"]) for line in read] == [row["loss"] for row in rows]
    assert [line["paper"] for line in read] == ["", "2.5"]
    write_json(tmp_path / "a.json", {"rows": rows})
    assert json.loads((tmp_path / "a.json").read_text()) == {"rows": rows}


@pytest.mark.slow
def test_what_a_killed_process_left_is_swept_up(tmp_path: Path) -> None:
    """Killed with the file half written, by itself, so that nothing else is left behind."""
    (tmp_path / "file").write_bytes(b"before")
    killed = (
        "import os, signal, sys, pathlib\n"
        "from chita.files.atomic import write_whole\n"
        "def half(self, content):\n"
        "    with self.open('wb', buffering=0) as file:\n"
        "        file.write(content[:2])\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "pathlib.Path.write_bytes = half\n"
        "write_whole(pathlib.Path(sys.argv[1]), b'after')\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, tmp_path / "file"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    assert (tmp_path / "file").read_bytes() == b"before"


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    link.symlink_to(target)
    for content in (b"new", b"again"):  # the target may be missing
        write_whole(link, content)
        assert link.is_symlink() and target.read_bytes() == content
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "link"}


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "folder"
    (tmp_path / "link").symlink_to(missing / "x")
    (tmp_path / "file").touch()
    for path, folder in (
        (missing / "x", missing),
        (tmp_path / "link", missing),
        (tmp_path / "file" / "x", tmp_path / "file"),
    ):
        with pytest.raises(ChitaError, match=naming(str(path), str(folder))) as found:
            write_whole(path, b"content")
        assert UNFINISHED not in str(found.value)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link, tmp_path):
        with pytest.raises(ChitaError, match=naming(str(path))):
            write_whole(path, b"content")
    assert pipe.is_fifo() and link.is_symlink()
    with pytest.raises(ChitaError, match=naming("/dev/null")):
        regular_target(Path("/dev/null"))
