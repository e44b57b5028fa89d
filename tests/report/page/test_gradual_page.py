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
    charts = {c["title"]: c for section in page["sections"] for c in section["charts"]}
    points = charts["Test accuracy"]["series"][0]["points"]
    assert [(p["x"], p["y"]) for p in points] == [(r.epoch, r.accuracy) for r in history.rows]
    assert [bool(p["note"]) for p in points] == [row.pruned for row in history.rows]
    bars = charts["Seconds of each epoch"]["rows"]
    assert [row["values"] for row in bars] == [[0.0, 2.5], [2.5, 0.0]] * 2
    facts = {fact["label"]: fact["value"] for fact in page["facts"]}
    assert facts == {
        "accuracy": "74.00 %",
        "sparsity": "75.00%",
        "weights kept": "4",
        "epochs": "4",
        "time": "10.00 s",
    }


@pytest.mark.parametrize(
    ("network", "published"), [("mlpnet", 0), ("mobilenetv1", 10), ("resnet50", 27)]
)
def test_the_papers_points_for_the_network(network: str, published: int, tmp_path: Path) -> None:
    write_gradual(tmp_path, network)
    chart = page_of(tmp_path)["sections"][0]["charts"][0]
    points = [
        p for series in chart["series"] if series["style"] == "paper" for p in series["points"]
    ]
    assert len(points) == published
    assert all(0.7 < point["x"] < 1 for point in points)
