import json
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.report.page.folder import read_folder
from tests.report.page.folders import ROWS, write_bench, write_gradual, write_prune


def test_what_prune_and_gradual_leave_is_found(tmp_path: Path) -> None:
    record = write_prune(tmp_path / "a")
    found = read_folder(tmp_path / "a")
    assert found.record == json.loads(json.dumps(record))
    assert found.config["method"] == "chita++"
    assert found.masks == tmp_path / "a/masks.safetensors"
    assert found.benchmarks == []
    write_gradual(tmp_path / "b")
    assert len((read_folder(tmp_path / "b").record or {})["epochs"]) == 4


def test_a_benchmark_comes_with_what_its_text_says_first(tmp_path: Path) -> None:
    write_bench(tmp_path)
    (tmp_path / "other.json").write_text('{"not": "ours"}')
    found = read_folder(tmp_path)
    assert found.record is None
    (benchmark,) = found.benchmarks
    assert (benchmark.name, benchmark.title) == ("table1", "A title")
    assert benchmark.rows == ROWS
    assert benchmark.text == "What it shows, on two lines."


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "contains no results: expected result.json"),
        ({"notes.txt": "x", "other.json": "[]"}, "contains no results"),
        ({"stage.safetensors": "x"}, "unfinished run, with stage.safetensors .* --resume"),
        ({"epoch.pt": "x"}, "unfinished run, with epoch.pt .* --resume"),
        ({"result.json": '{"stages": ['}, "cannot read .*result.json as JSON"),
        ({"result.json": "\x80"}, "cannot read .*result.json as JSON"),
        ({"result.json": "[]"}, "no result of prune or gradual"),
        ({"result.json": '{"stages": 3}'}, "stages is not a list of rows"),
        ({"result.json": '{"epochs": [1]}'}, "epochs is not a list of rows"),
        ({"table1.json": "{"}, "cannot read .*table1.json as JSON"),
        ({"table1.json": '{"benchmark": "table1"}'}, "rows is not a list of rows"),
        ({"result.json": '{"stages": []}', "config.yaml": "a: ["}, "config.yaml as YAML"),
        ({"result.json": '{"stages": []}', "config.yaml": "- a"}, "expected settings by name"),
    ],
)
def test_what_is_missing_or_damaged_is_named(
    files: dict[str, str], says: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(ChitaError, match=says):
        read_folder(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=r"there is no folder .*nowhere"):
        read_folder(tmp_path / "nowhere")
