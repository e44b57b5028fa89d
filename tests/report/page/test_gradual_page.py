from pathlib import Path
from typing import Any

import pytest

from chita.report.page.folder import read_folder
from chita.report.page.gradual_page import gradual_page
from tests.report.page.folders import write_gradual
from tests.support.messages import says


def page_of(folder: Path) -> dict[str, Any]:
    found = read_folder(folder)
    assert found.record is not None
    return gradual_page(found, found.record)


def test_epochs_are_those_of_the_history(tmp_path: Path) -> None:
    history = write_gradual(tmp_path)
    page = page_of(tmp_path)
    assert says(page["title"], "mlpnet", "CHITA")
    charts = {c["title"]: c for fold in page["folds"] for c in fold["charts"]}
    points = charts["Test accuracy of each epoch"]["series"][0]["points"]
    assert [(p["x"], p["y"]) for p in points] == [(r.epoch, r.accuracy) for r in history.rows]
    assert [bool(p["note"]) for p in points] == [row.pruned for row in history.rows]
    layers, time = page["sections"]
    assert layers["title"] == "Layers"
    bars = [(row["value"], row["text"]) for row in time["charts"][0]["rows"]]
    assert bars == [(5.0, "5.00 s in 2 epochs")] * 2
    facts = {fact["label"]: fact["value"] for fact in page["facts"]}
    assert facts == {
        "test accuracy": "74.00 %",
        "sparsity": "75.00 %",
        "epochs": "4",
        "time": "10.0 s",
    }


@pytest.mark.parametrize(
    ("network", "published"), [("mlpnet", 0), ("mobilenetv1", 10), ("resnet50", 27)]
)
def test_the_papers_points_for_the_network(network: str, published: int, tmp_path: Path) -> None:
    write_gradual(tmp_path, network)
    chart = page_of(tmp_path)["headline"]
    points = [
        p for series in chart["series"] if series["style"] == "paper" for p in series["points"]
    ]
    assert len(points) == published
    assert all(0.7 < point["x"] < 1 for point in points)


def test_the_headline_is_a_point_for_each_epoch(tmp_path: Path) -> None:
    history = write_gradual(tmp_path)
    (ours,) = page_of(tmp_path)["headline"]["series"]
    assert [(p["x"], p["y"]) for p in ours["points"]] == [
        (row.sparsity, row.accuracy) for row in history.rows
    ]
