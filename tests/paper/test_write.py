import csv
import json
from pathlib import Path

from PIL import Image

from chita.paper.write import Report, as_markdown, write_report

ROWS = [
    {"method": "MP, uniform", "sparsity": 0.5, "accuracy": 93.931234, "paper": None},
    {"method": "CBS", "sparsity": 0.98, "accuracy": "n/a", "paper": 55.45},
]


def test_the_four_files_say_the_same(tmp_path: Path) -> None:
    report = Report("A title", ROWS, as_markdown(ROWS), lambda figure: figure.add_subplot())
    write_report(tmp_path, "name", report)
    with (tmp_path / "name.csv").open() as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == ["method", "sparsity", "accuracy", "paper"]
    assert read[0]["method"] == "MP, uniform"
    assert float(read[0]["accuracy"]) == ROWS[0]["accuracy"]
    assert read[0]["paper"] == ""
    assert json.loads((tmp_path / "name.json").read_text())["rows"] == ROWS
    text = (tmp_path / "name.md").read_text()
    assert text.startswith("# A title\n")
    assert "| CBS | 0.98 | n/a | 55.45 |" in text
    assert "| MP, uniform | 0.5 | 93.931 | - |" in text
    assert "(name.png)" in text
    with Image.open(tmp_path / "name.png") as picture:
        assert picture.size[0] >= 600


def test_a_bar_in_a_name_is_no_border() -> None:
    lines = as_markdown([{"a|b": "|w|", "loss": 0.5}]).splitlines()
    assert lines == [r"| a\|b | loss |", "| --- | --- |", r"| \|w\| | 0.5 |"]
