from pathlib import Path
from typing import Any

import pytest

from chita.report import published as paper
from chita.report.page.folder import read_folder
from chita.report.page.prune_page import prune_page
from tests.report.page.folders import HELD_OUT, RECOVERED, write_prune
from tests.support.messages import says


def page_of(folder: Path) -> dict[str, Any]:
    found = read_folder(folder)
    assert found.record is not None
    return prune_page(found, found.record, {})


def titled(parts: list[dict[str, Any]], title: str) -> dict[str, Any]:
    (part,) = (part for part in parts if part["title"] == title)
    return part


def ys(chart: dict[str, Any], name: str) -> list[float]:
    return [point["y"] for point in titled_series(chart, name)["points"]]


def titled_series(chart: dict[str, Any], name: str) -> dict[str, Any]:
    (series,) = (series for series in chart["series"] if series["name"] == name)
    return series


def test_the_headline_is_that_of_the_tables(tmp_path: Path) -> None:
    record = write_prune(tmp_path, HELD_OUT)
    page = page_of(tmp_path)
    facts = {fact["label"]: fact["value"] for fact in page["facts"]}
    assert facts["test accuracy"] == "37.50 %"
    assert facts["sparsity"] == "50.00 %"
    assert facts["held-out loss"] == f"{record['held_out_loss']:.4g}"
    assert says(page["title"], "mlpnet", "CHITA++")
    assert says(page["lead"], "chita prune mlpnet", "data random", "seed 0")


def test_the_run_stands_beside_the_papers_points(tmp_path: Path) -> None:
    write_prune(tmp_path)
    chart = page_of(tmp_path)["headline"]
    assert ys(chart, "this run") == [37.5]
    assert ys(chart, "CHITA++, paper") == list(paper.ACCURACY["mlpnet"]["chita++"])
    assert chart["levels"] == [{"name": "dense, this run", "y": 40.0}]
    assert says(chart["text"], "93.97")


def test_the_headline_of_another_network_is_its_way_through_the_stages(tmp_path: Path) -> None:
    record = write_prune(tmp_path, HELD_OUT, network="mine")
    page = page_of(tmp_path)
    assert ys(page["headline"], "this run") == [row["held_out_loss"] for row in record["stages"]]
    assert [section["title"] for section in page["sections"]] == ["Layers", "Time"]


def test_the_headline_of_one_stage_is_before_and_after(tmp_path: Path) -> None:
    write_prune(tmp_path, network="mine", stages=[{"stage": 1, "sparsity": 0.5}])
    assert ys(page_of(tmp_path)["headline"], "this run") == [40.0, 37.5]


def test_a_record_without_figures_has_no_headline(tmp_path: Path) -> None:
    write_prune(tmp_path, network="mine", stages=[], seconds=None, accuracy=None)
    page = page_of(tmp_path)
    assert page["headline"] is None
    assert [section["title"] for section in page["sections"]] == ["Layers"]


@pytest.mark.parametrize(
    ("options", "first"), [(HELD_OUT, "Stages"), (RECOVERED, "What each part gained")]
)
def test_everything_but_gains_layers_and_time_is_folded(
    options: dict[str, Any], first: str, tmp_path: Path
) -> None:
    write_prune(tmp_path, options)
    page = page_of(tmp_path)
    assert [section["title"] for section in page["sections"]] == [first, "Layers", "Time"]
    assert all(len(section["charts"]) == 1 for section in page["sections"])
    assert [fold["title"] for fold in page["folds"]] == [
        "Stages in detail",
        "All layers",
        "Masks",
        "Settings",
        "All figures",
    ]


def test_times_are_those_of_the_record(tmp_path: Path) -> None:
    record = write_prune(tmp_path)
    page = page_of(tmp_path)
    (time,) = titled(page["sections"], "Time")["charts"]
    by_purpose = {row["name"]: row["value"] for row in time["rows"]}
    assert by_purpose["solves"] == record["seconds"]["solve"]
    assert sum(by_purpose.values()) == pytest.approx(record["seconds"]["total"])
    stages = titled(page["folds"], "Stages in detail")["charts"]
    each = titled(stages, "Seconds of each stage")
    assert ys(each, "solves") == [row["solve_seconds"] for row in record["stages"]]
    objective = titled(stages, "Objective after each stage")
    assert ys(objective, "objective") == [row["objective"] for row in record["stages"]]


def test_a_layer_shows_what_is_left_of_it(tmp_path: Path) -> None:
    record = write_prune(tmp_path)
    (chart,) = titled(page_of(tmp_path)["sections"], "Layers")["charts"]
    shares = [row["nonzeros"] / row["weights"] for row in record["layers"]]
    assert [row["value"] for row in chart["rows"]] == shares
