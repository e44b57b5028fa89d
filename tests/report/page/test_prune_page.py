from pathlib import Path
from typing import Any

import pytest

from chita.report import published as paper
from chita.report.page.folder import read_folder
from chita.report.page.prune_page import prune_page
from tests.report.page.folders import write_prune
from tests.support.messages import says


def page_of(folder: Path) -> dict[str, Any]:
    found = read_folder(folder)
    assert found.record is not None
    return prune_page(found, found.record)


def charts_of(page: dict[str, Any], title: str) -> dict[str, dict[str, Any]]:
    (section,) = (section for section in page["sections"] if section["title"] == title)
    return {chart["title"]: chart for chart in section["charts"]}


def ys(chart: dict[str, Any], name: str) -> list[float]:
    (series,) = (series for series in chart["series"] if series["name"] == name)
    return [point["y"] for point in series["points"]]


def test_the_headline_is_that_of_the_tables(tmp_path: Path) -> None:
    record = write_prune(tmp_path)
    page = page_of(tmp_path)
    facts = {fact["label"]: fact["value"] for fact in page["facts"]}
    assert facts["accuracy"] == "37.50 %"
    assert facts["sparsity"] == "50.00%"
    assert facts["weights kept"] == "36"
    assert facts["objective"] == f"{record['objective']:.4g}"
    assert facts["time"] == f"{record['seconds']['total']:.2f} s"
    assert facts["bit masks and values"] == f"{record['counts']['pruned_bytes'] / 1e3:,.1f} kB"
    assert says(page["title"], "mlpnet", "CHITA++")
    assert says(page["lead"], "chita prune mlpnet", "data random", "seed 0")


def test_the_run_stands_beside_the_papers_points(tmp_path: Path) -> None:
    write_prune(tmp_path)
    (chart,) = charts_of(page_of(tmp_path), "Accuracy").values()
    assert ys(chart, "this run") == [37.5]
    assert ys(chart, "CHITA++, paper") == list(paper.ACCURACY["mlpnet"]["chita++"])
    assert chart["levels"] == [{"name": "dense, this run", "y": 40.0}]


def test_a_network_without_figures_in_the_paper_stands_alone(tmp_path: Path) -> None:
    write_prune(tmp_path, network="mine")
    (chart,) = charts_of(page_of(tmp_path), "Accuracy").values()
    assert [series["name"] for series in chart["series"]] == ["this run"]


def test_stages_and_times_are_those_of_the_record(tmp_path: Path) -> None:
    record = write_prune(tmp_path)
    page = page_of(tmp_path)
    stages, times = charts_of(page, "Stages"), charts_of(page, "Time")
    objective = stages["Objective after each stage"]
    assert ys(objective, "objective") == [row["objective"] for row in record["stages"]]
    by_part = {row["name"]: row["values"][0] for row in times["Seconds in total"]["rows"]}
    assert set(by_part) == {*record["seconds"], "the rest"} - {"total"}
    assert sum(by_part.values()) == pytest.approx(record["seconds"]["total"])
    by_stage = times["Seconds of each stage"]
    assert {"gradient", "solve"} <= set(by_stage["parts"])
    solves = [row["values"][by_stage["parts"].index("solve")] for row in by_stage["rows"]]
    assert solves == [row["solve_seconds"] for row in record["stages"]]


def test_new_keys_of_a_stage_show_and_missing_ones_do_no_harm(tmp_path: Path) -> None:
    stages = [
        {
            "stage": 1,
            "loss": 0.5,
            "choice": "uniform",
            "candidates": [{"loss": 0.5}, {"loss": 0.75}, "odd"],
        },
        {
            "stage": 2,
            "objective": float("nan"),
            "loss": 0.25,
            "choice": "global",
            "why": "lower loss",
        },
    ]
    write_prune(tmp_path, stages=stages, seconds=None, accuracy=None)
    page = page_of(tmp_path)
    (section,) = (section for section in page["sections"] if section["title"] == "Stages")
    loss_chart, tried_chart = section["charts"]  # no objective, ridge or sparsity to draw
    (loss,) = loss_chart["series"]
    (tried,) = tried_chart["series"]
    assert [(point["x"], point["y"]) for point in tried["points"]] == [(1, 0.5), (1, 0.75)]
    assert [point["note"] for point in loss["points"]] == [
        "choice: uniform",
        "choice: global, why: lower loss",
    ]
    (table,) = section["tables"]
    assert set(table["columns"]) == {"stage", "objective", "loss", "choice", "why", "candidates"}
    assert table["rows"][0][table["columns"].index("candidates")] == "3"
    assert not any(section["title"] == "Time" for section in page["sections"])


def test_a_layer_shows_what_is_left_of_it(tmp_path: Path) -> None:
    record = write_prune(tmp_path)
    (chart,) = charts_of(page_of(tmp_path), "Layers").values()
    shares = [row["nonzeros"] / row["weights"] for row in record["layers"]]
    assert [row["values"] for row in chart["rows"]] == [[share] for share in shares]
