"""References to the objects of users."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.references.python_object import import_module_or_file, load_object
from tests.support.messages import naming


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; the modules that a test imports from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_file_or_a_module_of_the_current_folder(folder: Path) -> None:
    (folder / "own_things.py").write_text("value = 3\nclass Thing:\n    part = 'inner'\n")
    assert load_object("own_things.py:value") == 3
    assert load_object("own_things:Thing.part") == "inner"
    (folder / "package").mkdir()
    (folder / "package/__init__.py").write_text("")
    (folder / "package/parts.py").write_text("from package import __name__ as value\n")
    assert load_object("package.parts:value") == "package"


def test_a_file_imports_its_neighbours(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/neighbour_of_it.py").write_text("value = 5\n")
    (folder / "sub/using_it.py").write_text("from neighbour_of_it import value\n")
    assert load_object("sub/using_it.py:value") == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere_at_all:build", naming("nowhere_at_all", "module")),
        ("absent.py:build", naming("absent.py", "file")),
        ("made.py:bild", naming("made.py:bild", "'bild'", "'build'")),
        ("made.py:build.inner", naming("build", "'inner'")),
        ("made.py:", naming("'made.py:'", "MODULE:NAME", "FILE.py:NAME")),
        (":build", naming("':build'", "FILE.py:NAME")),
        ("made.py:a-b", naming("made.py:a-b", "FILE.py:NAME")),
        ("raising.py:build", naming("raising.py", "ZeroDivisionError")),
        ("leaving.py:build", naming("leaving.py", "SystemExit")),
        ("broken.py:build", naming("broken.py", "SyntaxError")),
        ("needing.py:build", naming("needing.py", "absent_package")),
        (".:build", naming("import", "module")),
        ("a folder:build", naming("a folder", "module")),
    ],
)
def test_what_cannot_be_found_is_one_line(folder: Path, text: str, message: str) -> None:
    for name, content in {
        "made": "def build(): pass",
        "raising": "1 / 0",
        "leaving": "raise SystemExit(3)",
        "broken": "def",
        "needing": "import absent_package",
    }.items():
        (folder / f"{name}.py").write_text(content)
    with pytest.raises(ChitaError, match=message) as error:
        load_object(text)
    assert "\n" not in str(error.value)


def test_a_file_that_is_named_like_a_loaded_module(folder: Path) -> None:
    (folder / "json.py").write_text("value = 1\n")
    with pytest.raises(ChitaError, match=naming(r"'json'", "rename")):
        import_module_or_file("json.py")
