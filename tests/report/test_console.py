import json

import pytest
from rich.table import Table

from chita.report.console import show, show_json


def test_lines_are_said_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """No brackets are taken for markup, and nothing is wrapped."""
    line = "runs/[bold]a[/] " + "long " * 60 + "path.safetensors"
    show(line, "and another")
    assert capsys.readouterr().out == f"{line}\nand another\n"


def test_tables_fit_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = Table("name", "words")
    table.add_row("[bold]first[/]", "word " * 30)
    show(table)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5 and all(len(text) <= 40 for text in lines)
    assert any(" first " in text for text in lines)  # a table's maker may use markup


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"text": "two\nlines", "figures": [1, 0.5, None]}
    show_json(record)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == record
