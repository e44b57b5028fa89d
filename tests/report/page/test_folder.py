import json
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.report.page.folder import read_folder
from tests.report.page.folders import ROWS, write_bench, write_gradual, write_prune, write_recover
from tests.support.messages import naming


def test_what_prune_gradual_and_recover_leave_is_found(tmp_path: Path) -> None:
    record = write_prune(tmp_path / "a")
    found = read_folder(tmp_path / "a")
    assert found.record == json.loads(json.dumps(record))
    assert found.config["method"] == "chita++"
    assert found.masks == tmp_path / "a/masks.safetensors"
    assert found.benchmarks == []
    write_gradual(tmp_path / "b")
    assert len((read_folder(tmp_path / "b").record or {})["epochs"]) == 4
    record = write_recover(tmp_path / "c")
    assert read_folder(tmp_path / "c").record == record


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
    ("files", "message"),
    [
        ({}, naming("result.json")),
        ({"notes.txt": "x", "other.json": "[]"}, naming("result.json")),
        ({"stage.safetensors": "x"}, naming("stage.safetensors", "--resume")),
        ({"epoch.pt": "x"}, naming("epoch.pt", "--resume")),
        ({"result.json": '{"stages": ['}, naming("result.json", "JSON")),
        ({"result.json": "\x80"}, naming("result.json", "JSON")),
        ({"result.json": "[]"}, naming("result.json", "prune", "gradual", "recover")),
        ({"result.json": '{"stages": 3}'}, naming("result.json", "stages")),
        ({"result.json": '{"epochs": [1]}'}, naming("result.json", "epochs")),
        ({"table1.json": "{"}, naming("table1.json", "JSON")),
        ({"table1.json": '{"benchmark": "table1"}'}, naming("table1.json", "rows")),
        ({"result.json": '{"stages": []}', "config.yaml": "a: ["}, naming("config.yaml", "YAML")),
        (
            {"result.json": '{"stages": []}', "config.yaml": "- a"},
            naming("config.yaml", without="YAML"),
        ),
    ],
)
def test_what_is_missing_or_damaged_is_named(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(ChitaError, match=message):
        read_folder(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "nowhere"))):
        read_folder(tmp_path / "nowhere")
