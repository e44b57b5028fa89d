import json
import re
from pathlib import Path

import torch

import chita
from chita.files.checkpoint import save_checkpoint
from chita.report.page.folder import read_folder
from chita.report.page.render import page_data, render, write_page
from tests.report.page.folders import EVIL, write_bench, write_gradual, write_prune

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


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
    assert [section["title"] for section in page["sections"]][:2] == ["A title", "Accuracy"]
    assert page["version"] == chita.__version__


def test_a_page_of_many_large_layers_is_under_2_mb(tmp_path: Path) -> None:
    record = write_prune(tmp_path)
    names = [f"stage{i}.block.convolution.weight" for i in range(200)]
    noise = torch.rand(256, 576, generator=torch.Generator().manual_seed(0)) < 0.1
    save_checkpoint(dict.fromkeys(names, noise), tmp_path / "masks.safetensors")
    record["layers"] = [{**record["layers"][0], "name": name} for name in names]
    (tmp_path / "result.json").write_text(json.dumps(record))
    assert 0.5e6 < write_page(tmp_path).stat().st_size < 2e6
