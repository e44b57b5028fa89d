"""What all kept runs have in common, with a file of plain JSON."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from chita.errors import ChitaError
from chita.files.resumable import ResumableRun, StoredRun
from tests.support.messages import naming

RUN: dict[str, Any] = {"method": "chita-bso", "seed": 3, "include": ("a*", "b*")}


@dataclass(frozen=True)
class Squares:
    rows: list[int]


class SquareFile(ResumableRun[Squares]):
    file = "squares.json"
    part = "square"

    @classmethod
    def read(cls, path: Path) -> StoredRun[Squares]:
        run, total, finished = json.loads(path.read_text())
        return StoredRun(run, total, Squares(**finished))

    def write(self, finished: Squares) -> None:
        self.path.write_text(json.dumps([self.run, self.total, asdict(finished)]))


def kept(folder: Path, **changes: Any) -> SquareFile:
    return SquareFile(folder, {**RUN, **changes}, 4)


def test_goes_on_after_what_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert kept(folder).begin(resume=True) is None
    kept(folder).write(Squares([1, 4]))
    assert kept(folder).begin(resume=True) == Squares([1, 4])
    assert SquareFile.done(folder) == (2, 4)


def test_another_run_is_refused_by_what_differs(tmp_path: Path) -> None:
    kept(tmp_path).write(Squares([1]))
    with pytest.raises(ChitaError, match=naming("squares.json", "seed", 3, 4)) as caught:
        kept(tmp_path, seed=4).begin(resume=True)
    assert "method" not in str(caught.value) and "include" not in str(caught.value)


def test_an_unfinished_run_is_not_given_up(tmp_path: Path) -> None:
    kept(tmp_path).write(Squares([1, 4, 9]))
    with pytest.raises(
        ChitaError, match=naming("square 3", 4, re.compile("resume"), "squares.json")
    ):
        kept(tmp_path).begin(resume=False)
    assert SquareFile.done(tmp_path) == (3, 4)


def test_a_finished_run_makes_room(tmp_path: Path) -> None:
    kept(tmp_path).write(Squares([1, 4, 9, 16]))
    assert kept(tmp_path).begin(resume=False) is None
    assert SquareFile.done(tmp_path) is None
    SquareFile.check_none_unfinished(tmp_path)  # nothing there is fine


@pytest.mark.parametrize("content", ["", "[1, 2]", '[{}, 4, {"lines": []}]'])
@pytest.mark.parametrize("resume", [True, False])
def test_a_damaged_file_says_so(content: str, resume: bool, tmp_path: Path) -> None:
    (tmp_path / SquareFile.file).write_text(content)
    with pytest.raises(ChitaError, match=naming("squares.json", re.compile("damaged|corrupt"))):
        kept(tmp_path).begin(resume=resume)
    assert (tmp_path / SquareFile.file).read_text() == content


def test_a_file_that_vanishes_while_it_is_read(tmp_path: Path) -> None:
    """A run that starts anew removes it."""
    kept(tmp_path).write(Squares([1]))

    class Vanishing(SquareFile):
        @classmethod
        def read(cls, path: Path) -> StoredRun[Squares]:
            path.unlink()
            return super().read(path)

    assert Vanishing.done(tmp_path) is None
