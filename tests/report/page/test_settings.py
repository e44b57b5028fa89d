from pathlib import Path

from chita.report.page.folder import Folder
from chita.report.page.settings import settings_folds

DEFAULTS = {"method": "auto", "ridge": "auto", "hold": 0.0, "strict": False, "stages": None}


def test_settings_that_differ_from_the_defaults_come_first() -> None:
    config = {
        "method": "chita++",
        "ridge": "auto",
        "hold": 0.0,
        "strict": True,
        "stages": None,
        "recipe": {"epochs": 8, "methods": {"m-fac": {"samples": 1000}}},
    }
    settings, figures = settings_folds(Folder(Path(), {"seed": 3}, config, None, []), DEFAULTS)
    tables = {table["title"]: dict(table["rows"]) for table in settings["tables"]}
    differing, usual = tables.values()
    assert differing == {
        "method": "chita++",
        "strict": "yes",
        "recipe.epochs": "8",
        "recipe.methods.m-fac.samples": "1,000",
    }
    assert usual == {"ridge": "auto", "hold": "0", "stages": "not set"}
    assert figures["tables"][0]["rows"] == [["seed", "3"]]


def test_a_number_is_not_a_flag() -> None:
    config = {"strict": 0, "hold": False}
    (settings,) = settings_folds(Folder(Path(), {}, config, None, []), DEFAULTS)
    (table,) = settings["tables"]
    assert [name for name, _ in table["rows"]] == ["strict", "hold"]


def test_rows_of_the_record_are_shown_elsewhere() -> None:
    record = {"accuracy": 74.0, "stages": [{"stage": 1}], "repairs": [], "ridge": None}
    (figures,) = settings_folds(Folder(Path(), record, {}, None, []), {})
    assert figures["tables"][0]["rows"] == [["accuracy", "74.00"]]
