import json

import pytest
from rich.table import Table
from rich.text import Text

from chita.report.console import show, show_error, show_json
from chita.report.tables import as_text


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
    table.add_row(Text.from_markup("[bold]first[/]"), "word " * 30)
    show(table)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5 and all(len(text) <= 40 for text in lines)
    assert any(" first " in text for text in lines)  # a table's maker may use markup


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[/b]layers[0]", "[/b]layers[0]"),
        ("\x1b[2J\x1b]0;title\x07w", r"\x1b[2J\x1b]0;title\x07w"),
        ("\r\x9b31mw\u202e", r"\r\x9b31mw\u202e"),
        ("\udcff", r"\udcff"),
        ("größe", "größe"),
    ],
)
def test_names_reach_the_terminal_as_text(
    name: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table("name", title=name)
    table.add_row(name)
    show(f"line {name}", table)
    show_error(f"error {name}")
    printed = capsys.readouterr()
    assert printed.out.count(shown) == 3
    assert f"error {shown}" in printed.err
    assert as_text(table).count(shown) == 2


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"text": "two\nlines", "figures": [1, 0.5, None]}
    show_json(record)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == record
