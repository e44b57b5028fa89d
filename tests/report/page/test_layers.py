from pathlib import Path
from typing import Any

from chita.report.page.folder import Folder, read_folder
from chita.report.page.layers import MOST, layer_parts
from tests.report.page.folders import write_gradual


def rows(names: list[str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "weights": 10, "nonzeros": place % 10} for place, name in enumerate(names)
    ]


def test_without_layers_in_the_record_those_of_the_masks_are_shown(tmp_path: Path) -> None:
    write_gradual(tmp_path)
    (section,), (layers, masks) = layer_parts(read_folder(tmp_path), {})
    (row,) = section["charts"][0]["rows"]
    assert (row["name"], row["value"], row["text"]) == ("weight", 0.25, "25.00 %, 4 of 16")
    assert layers["tables"][0]["rows"] == [["weight", "4 x 4", "16", "4", "75.00 %"]]
    assert [mask["name"] for mask in masks["masks"]] == ["weight"]


def test_without_masks_there_are_no_pictures(tmp_path: Path) -> None:
    write_gradual(tmp_path)
    (tmp_path / "masks.safetensors").unlink()
    assert layer_parts(read_folder(tmp_path), {}) == ([], [])


def test_many_layers_are_shown_by_module_and_each_of_them_in_the_fold() -> None:
    names = [f"block{i}.conv{j}.weight" for i in range(5) for j in range(MOST)] + ["head.weight"]
    layers = rows(names)
    (section,), (details,) = layer_parts(Folder(Path(), {}, {}, None, []), {"layers": layers})
    (modules,), (each,) = section["charts"], details["charts"]
    assert [row["name"] for row in modules["rows"]] == [*(f"block{i}" for i in range(5)), "head"]
    kept = sum(row["nonzeros"] for row in layers[:MOST])
    assert modules["rows"][0]["text"].endswith(f"{kept} of {10 * MOST}")
    assert [row["name"] for row in each["rows"]] == [name[: -len(".weight")] for name in names]


def test_a_few_layers_are_shown_once() -> None:
    layers = rows([f"a.b{i}.weight" for i in range(MOST)])
    (section,), (details,) = layer_parts(Folder(Path(), {}, {}, None, []), {"layers": layers})
    assert len(section["charts"][0]["rows"]) == MOST
    assert details["charts"] == []
