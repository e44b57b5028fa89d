import json
import os
from pathlib import Path
from typing import Any

import pytest

from chita.errors import ChitaError
from chita.paper.cells import Cell, Cells
from tests.support.messages import naming


def square(number: int, calls: list[int]) -> Cell:
    def compute() -> dict[str, Any]:
        calls.append(number)
        return {"square": number**2}

    return Cell({"number": number}, compute)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    calls: list[int] = []

    def interrupt() -> dict[str, Any]:
        raise KeyboardInterrupt

    cells = [square(number, calls) for number in range(4)]
    with pytest.raises(KeyboardInterrupt):
        Cells(tmp_path).compute([*cells[:2], Cell({"number": 2}, interrupt)], "squares")
    again = Cells(tmp_path)
    again.compute(cells, "squares")
    assert calls == [0, 1, 2, 3]
    assert [record["square"] for record in again.records(cells)] == [0, 1, 4, 9]


def test_a_torn_last_line_is_dropped_and_computed_again(tmp_path: Path) -> None:
    calls: list[int] = []
    cells = [square(number, calls) for number in range(3)]
    Cells(tmp_path).compute(cells, "squares")
    file = tmp_path / "cells.jsonl"
    file.write_text(file.read_text()[:-4])
    again = Cells(tmp_path)
    assert len(again.records(cells)) == 2
    again.compute(cells, "squares")
    assert calls == [0, 1, 2, 2]
    assert [json.loads(line)["square"] for line in file.read_text().splitlines()] == [0, 1, 4]


def test_a_missing_field_of_a_setting_has_its_default(tmp_path: Path) -> None:
    old = {"network": "mlpnet", "sparsity": 0.5, "seed": 0, "method": "chita++", "ridge": 0.001}
    (tmp_path / "cells.jsonl").write_text(json.dumps({"key": old, "accuracy": 96.0}) + "\n")
    kept = Cells(tmp_path)
    none: list[int] = []
    cell = square(1, none)
    assert kept.records([Cell({**old, "block_size": None, "hold": 0.0}, cell.compute)])
    assert not kept.records([Cell({**old, "block_size": 2000}, cell.compute)])
    assert not kept.records([Cell({**old, "seed": 1}, cell.compute)])


def fail() -> dict[str, Any]:
    raise ChitaError("needs 4.2 GB")


def test_a_cell_that_cannot_be_computed_does_not_stop_the_others(tmp_path: Path) -> None:
    cells = [Cell({"number": "large"}, fail), square(2, [])]
    kept = Cells(tmp_path)
    kept.compute(cells, "squares")
    assert [record["square"] for record in kept.records(cells)] == [4]
    assert len(Cells(tmp_path).records(cells)) == 1  # it is tried again the next time


def test_if_no_cell_can_be_computed_the_reason_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=r"4\.2 GB"):
        Cells(tmp_path).compute([Cell({"number": "large"}, fail)], "squares")


@pytest.mark.parametrize("line", ["no JSON", "[1, 2]", '{"figures": 1}', '{"key": 3}'])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "cells.jsonl").write_text('{"key": {}}\n' + line + "\n")
    with pytest.raises(ChitaError, match=naming("line 2", "cells.jsonl")):
        Cells(tmp_path)


def test_a_file_of_the_user_is_not_cut(tmp_path: Path) -> None:
    file = tmp_path / "cells.jsonl"
    for text in ("mine", "mine\nmine", '{"key": {}}\n{"mine": 1}'):
        file.write_text(text)
        with pytest.raises(ChitaError, match=naming("cells.jsonl")):
            Cells(tmp_path)
        assert file.read_text() == text
    file.write_text('{"ke')  # the first cell of a killed run
    Cells(tmp_path)
    assert file.read_text() == ""


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cells.jsonl")
    with pytest.raises(ChitaError, match=naming("cells.jsonl")):
        Cells(tmp_path)
