from pathlib import Path
from typing import Any

from chita.cli.bench import BENCHMARKS
from chita.report.page.bench_page import bench_page
from chita.report.page.benchmark_charts import VIEWS
from chita.report.page.folder import read_folder
from tests.report.page.folders import write_bench


def page_of(folder: Path) -> dict[str, Any]:
    return bench_page(read_folder(folder).benchmarks)


def test_a_chart_for_each_network_and_choice_with_the_papers_points(tmp_path: Path) -> None:
    write_bench(tmp_path)
    page = page_of(tmp_path)
    (section,) = page["sections"]
    first, second = section["charts"]
    assert first["title"] == "mlpnet, grid: Test accuracy against sparsity"
    assert second["title"] == "mlpnet, auto: Test accuracy against sparsity"
    curves = {
        series["name"]: [(point["x"], point["y"]) for point in series["points"]]
        for series in first["series"]
    }
    assert curves == {
        "MP": [(0.9, 90.5), (0.98, 33.0)],
        "CHITA++": [(0.9, 96.5), (0.98, 92.25)],
        "MP, paper": [(0.9, 90.3), (0.98, 32.25)],
        "CHITA++, paper": [(0.9, 95.55), (0.98, 90.73)],
        "CBS, paper": [(0.98, 55.45)],
    }
    (fact,) = page["facts"]
    assert fact["label"] == "mlpnet, 98% sparse"
    assert (fact["value"], fact["note"]) == ("92.25 %", "CHITA++; paper: 90.73 %")


def test_a_colour_is_one_method_in_all_charts(tmp_path: Path) -> None:
    write_bench(tmp_path)
    colours: dict[str, set[int]] = {}
    for chart in page_of(tmp_path)["sections"][0]["charts"]:
        for series in chart["series"]:
            colours.setdefault(series["name"].removesuffix(", paper"), set()).add(series["colour"])
    assert all(len(places) == 1 for places in colours.values())
    assert len({place for places in colours.values() for place in places}) == 3


def test_numbers_side_by_side_are_in_order_and_curves_say_what_they_are(tmp_path: Path) -> None:
    rows = [
        {"network": "a", "run": "IHT", "ridge": r, "iterations": i, "accuracy": 10.0 * i + r}
        for r in (0.0, 0.01)
        for i in (5, 0, 100)
    ]
    write_bench(tmp_path, "ridge", rows)
    (chart,) = page_of(tmp_path)["sections"][0]["charts"]
    assert chart["x"]["names"] == ["0", "5", "100"]
    assert [series["name"] for series in chart["series"]] == ["IHT, ridge 0", "IHT, ridge 0.01"]
    assert [point["y"] for point in chart["series"][0]["points"]] == [0.0, 50.0, 1000.0]


def test_rows_that_are_not_known_are_a_table(tmp_path: Path) -> None:
    write_bench(tmp_path, "new", [{"a": 1, "b": None}])
    (section,) = page_of(tmp_path)["sections"]
    assert section["charts"] == []
    assert section["tables"][0]["rows"] == [["1", "-"]]


def test_every_benchmark_has_its_charts() -> None:
    assert set(VIEWS) == {*BENCHMARKS, "demo"}
