from pathlib import Path

from chita.report.page.common_sections import common_sections
from chita.report.page.folder import read_folder
from tests.report.page.folders import write_gradual


def test_without_layers_in_the_record_the_masks_tell_them(tmp_path: Path) -> None:
    write_gradual(tmp_path)
    layers, masks, settings = common_sections(read_folder(tmp_path), [])
    (row,) = layers["charts"][0]["rows"]
    assert (row["name"], row["values"], row["text"]) == ("weight", [0.25], "4 of 16")
    assert [mask["name"] for mask in masks["masks"]] == ["weight"]
    tables = {table["title"]: table["rows"] for table in settings["tables"]}
    assert ["method", "chita-bso"] in tables["Settings"]
    assert ["accuracy", "74.00"] in tables["All figures"]


def test_without_masks_there_are_no_pictures(tmp_path: Path) -> None:
    write_gradual(tmp_path)
    (tmp_path / "masks.safetensors").unlink()
    (settings,) = common_sections(read_folder(tmp_path), [])
    assert settings["title"] == "Settings"
