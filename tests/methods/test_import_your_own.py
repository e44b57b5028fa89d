"""Methods of a user, from a file, a module or a package that the command line imports."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chita import ChitaError
from chita.cli.app import app
from chita.curvature import NoCurvature
from chita.methods import BUILT_IN, get_method, method_names
from tests.support.messages import naming
from tests.support.own_methods import MINE, REGISTERED

pytestmark = pytest.mark.usefixtures("registry_restored")


def test_the_command_line_imports_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine_file.py").write_text(REGISTERED)
    arguments = ["prune", "mlpnet", "--import", str(tmp_path / "mine_file.py"), "--method", "mine"]
    for _ in range(2):  # a second command in the same process does not register it again
        done = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
        record = json.loads(done.stdout.splitlines()[-1])
        assert (record["method"], record["nonzeros"]) == ("mine", 3235)


@pytest.mark.parametrize("given", ["no_such_module", "no.such.module", "nowhere.py"])
def test_an_import_that_does_not_exist_is_named(given: str) -> None:
    with pytest.raises(ChitaError, match=re.escape(given)):
        imported(given)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import no_such_module_at_all", ("ModuleNotFoundError", "no_such_module_at_all")),
        ("\ndef", ("SyntaxError", "line 2")),
        ("1 / 0", ("ZeroDivisionError", "division by zero")),
        ("raise RuntimeError('one\\ntwo')", ("RuntimeError", "one two")),
        ("raise SystemExit(3)", ("SystemExit", 3)),
        ("raise KeyError", ("KeyError",)),
        (REGISTERED.replace('"mine"', '"obd"'), ("method", "'obd'")),
    ],
)
def test_an_error_inside_an_imported_file_is_named_with_the_file(
    tmp_path: Path, text: str, error: tuple[object, ...]
) -> None:
    (tmp_path / "broken_file.py").write_text(text)
    for _ in range(2):
        with pytest.raises(ChitaError, match=naming("broken_file.py", *error)) as raised:
            imported(str(tmp_path / "broken_file.py"))
        assert "\n" not in str(raised.value)


def test_an_error_inside_an_imported_module_is_named_with_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("import no_such_module_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ChitaError, match=naming("broken_module", "no_such_module_at_all")):
        imported("broken_module")


@pytest.mark.parametrize("given", ["", ".", "..", "./mine_folder", "mine_folder", "mine.py"])
def test_an_import_of_a_folder_is_refused(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("mine_folder", "mine.py"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ChitaError, match=naming(given or "''")):
        imported(given)


def imported(name: str) -> None:
    CliRunner().invoke(app, ["prune", "mlpnet", "--import", name], catch_exceptions=False)


def test_a_package_declares_methods_as_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown names and lists of names load them; a package that fails is skipped."""
    (tmp_path / "my_package.py").write_text(MINE)
    (tmp_path / "my_registering.py").write_text(REGISTERED.replace('"mine"', '"other"'))
    (tmp_path / "my_broken.py").write_text("raise RuntimeError('no luck')")
    metadata = tmp_path / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[chita.methods]\nmine = my_package:MINE\nother = my_registering:MINE\n"
        "broken = my_broken:MINE\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    get_method("obd")
    assert "my_package" not in sys.modules
    assert get_method("mine").curvature is NoCurvature
    assert set(method_names()) == {*BUILT_IN, "mine", "other"}
    assert "broken" in caplog.text and "no luck" in caplog.text
