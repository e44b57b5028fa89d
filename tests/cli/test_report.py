import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chita.cli.app import app
from chita.errors import ChitaError
from chita.pruning.config import PruneConfig
from chita.pruning.options.declaration import defaults_of
from tests.report.page.folders import write_gradual, write_recover
from tests.support.messages import naming, says

PRUNE = ["prune", "mlpnet", "--method", "magnitude", "--device", "cpu", "--report"]


def test_the_page_goes_into_the_folder_or_where_it_is_asked_for(tmp_path: Path) -> None:
    write_gradual(tmp_path / "run")
    for arguments, page in (
        ([], tmp_path / "run/report.html"),
        (["--out", str(tmp_path / "mine.html")], tmp_path / "mine.html"),
    ):
        done = CliRunner().invoke(
            app, ["report", str(tmp_path / "run"), *arguments], catch_exceptions=False
        )
        assert done.exit_code == 0
        assert str(page) in done.output.replace("\n", "")
        assert says(page.read_text(), "mlpnet", "CHITA")


def test_an_unknown_folder_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming(str(tmp_path), "result.json")):
        CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_gradual(tmp_path / "run")
    out = tmp_path / "none/page.html"
    with pytest.raises(ChitaError, match=naming("none/page.html")):
        CliRunner().invoke(
            app, ["report", str(tmp_path / "run"), "--out", str(out)], catch_exceptions=False
        )


def test_prune_ends_with_a_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*PRUNE, "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert says((tmp_path / "report.html").read_text(), re.compile("<title>[^<]*mlpnet[^<]*MP"))


def test_settings_other_than_the_defaults_of_prune_come_first(tmp_path: Path) -> None:
    arguments = [*PRUNE, "--out", str(tmp_path), "--sparsity", "0.7"]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
    data = re.findall(r'id="data">(.*?)</script>', (tmp_path / "report.html").read_text())[0]
    (settings,) = (fold for fold in json.loads(data)["folds"] if fold["title"] == "Settings")
    given, usual = (dict(table["rows"]) for table in settings["tables"])
    assert {"method": "magnitude", "sparsity": "70.00 %"}.items() <= given.items()
    defaults = defaults_of(PruneConfig)
    assert {name for name, value in defaults.items() if value is None} <= {*usual, *given}
    assert {"start", "allocation", "seed"} <= set(usual)
    assert not set(given) & set(usual)


def test_a_recovered_network_has_a_page(tmp_path: Path) -> None:
    write_recover(tmp_path)
    done = CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert says(page, re.compile("<title>[^<]*mlpnet[^<]*recovered"))


def test_prune_needs_a_folder_for_its_page() -> None:
    with pytest.raises(ChitaError, match=naming("--report", "--out")):
        CliRunner().invoke(app, PRUNE, catch_exceptions=False)
