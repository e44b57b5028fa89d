import json
import re
from pathlib import Path

import pytest
import torch

import chita
from chita.files.checkpoint import save_checkpoint
from chita.report.page.folder import read_folder
from chita.report.page.render import page_data, render, write_page
from tests.report.page.folders import EVIL, KINDS, write_bench, write_gradual, write_prune

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_one_headline_few_charts_and_all_else_folded(kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / "run")
    html = write_page(tmp_path / "run").read_text()
    page = json.loads(DATA.findall(html)[0])
    assert page["headline"]["kind"] == "lines"
    assert all(set(section) == {"title", "text", "charts"} for section in page["sections"])
    shown = [chart for section in page["sections"] for chart in section["charts"]]
    assert len(shown) <= 4
    assert all(len(chart["rows"]) <= 36 for chart in shown if chart["kind"] == "bars")
    titles = [fold["title"] for fold in page["folds"]]
    assert len(titles) == len(set(titles)) >= 1
    assert any(fold["tables"] for fold in page["folds"])
    for chart in shown:
        assert not re.search("ridge|seconds of each", chart["title"].lower())


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    write_prune(tmp_path)
    html = write_page(tmp_path).read_text()
    addresses = re.findall(r"""(?:src|href)=["']([^"']*)|url\(([^)]*)\)|@import""", html)
    assert {first or second for first, second in addresses} <= {"data:,", "#main"}


def test_hostile_names_stay_data(tmp_path: Path) -> None:
    write_prune(tmp_path, network=EVIL)
    html = write_page(tmp_path).read_text()
    assert "alert(1)" in html
    assert EVIL not in html
    assert html.count("<script") == html.count("</script>") == 2
    data = json.loads(DATA.findall(html)[0])
    assert any(
        row["name"] == EVIL
        for s in data["sections"]
        for c in s["charts"]
        for row in c.get("rows", [])
    )


def test_what_json_cannot_say_is_null(tmp_path: Path) -> None:
    write_prune(tmp_path)
    page = page_data(read_folder(tmp_path))
    page["facts"] = [{"value": float("nan")}, {"value": float("inf")}, {"value": 1 / 3}]
    data = json.loads(DATA.findall(render(page))[0])
    assert [fact["value"] for fact in data["facts"]] == [None, None, 0.333333]


def test_braces_in_the_data_are_not_filled_in(tmp_path: Path) -> None:
    write_prune(tmp_path, network="{{style}} {{nothing}}")
    data = json.loads(DATA.findall(write_page(tmp_path).read_text())[0])
    assert data["title"] == "{{style}} {{nothing}} pruned by CHITA++"


def test_a_folder_with_a_run_and_a_benchmark_shows_both(tmp_path: Path) -> None:
    write_gradual(tmp_path)
    write_bench(tmp_path)
    page = page_data(read_folder(tmp_path))
    assert [section["title"] for section in page["sections"]] == ["More results", "Layers", "Time"]
    own, rows, *_ = page["folds"]
    assert [chart["title"] for chart in own["charts"]] == ["Test accuracy against sparsity"]
    assert rows["title"] == "All rows of table1"
    assert page["version"] == chita.__version__


def test_a_page_of_many_large_layers_is_under_2_mb(tmp_path: Path) -> None:
    record = write_prune(tmp_path)
    names = [f"stage{i}.block.convolution.weight" for i in range(200)]
    noise = torch.rand(256, 576, generator=torch.Generator().manual_seed(0)) < 0.1
    save_checkpoint(dict.fromkeys(names, noise), tmp_path / "masks.safetensors")
    record["layers"] = [{**record["layers"][0], "name": name} for name in names]
    (tmp_path / "result.json").write_text(json.dumps(record))
    assert 0.5e6 < write_page(tmp_path).stat().st_size < 2e6
