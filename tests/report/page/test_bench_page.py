from pathlib import Path
from typing import Any

from chita.cli.bench import BENCHMARKS
from chita.report.page.bench_page import MOST_CHARTS, MOST_FACTS, bench_page
from chita.report.page.benchmark_charts import VIEWS
from chita.report.page.folder import read_folder
from tests.report.page.folders import write_bench


def page_of(folder: Path) -> dict[str, Any]:
    return bench_page(read_folder(folder).benchmarks)


def test_a_chart_for_each_network_and_choice_with_the_papers_points(tmp_path: Path) -> None:
    write_bench(tmp_path)
    page = page_of(tmp_path)
    (section,) = page["sections"]
    first, (second,) = page["headline"], section["charts"]
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
    assert fact["label"] == "mlpnet, 98.00 % sparse"
    assert fact["value"] == "92.25 %"
    assert fact["note"] == "CHITA++; paper: 90.73 %; best other: MP, 33.00 %"


def test_a_colour_is_one_method_in_all_charts(tmp_path: Path) -> None:
    write_bench(tmp_path)
    colours: dict[str, set[int]] = {}
    page = page_of(tmp_path)
    for chart in (page["headline"], *page["sections"][0]["charts"]):
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
    chart = page_of(tmp_path)["headline"]
    assert chart["x"]["names"] == ["0", "5", "100"]
    assert [series["name"] for series in chart["series"]] == ["IHT, ridge 0", "IHT, ridge 0.01"]
    assert [point["y"] for point in chart["series"][0]["points"]] == [0.0, 50.0, 1000.0]


def test_rows_that_are_not_known_are_a_table(tmp_path: Path) -> None:
    write_bench(tmp_path, "new", [{"a": 1, "b": None}, {"b": 2}])
    page = page_of(tmp_path)
    (section,) = page["sections"]
    assert (page["headline"], section["charts"]) == (None, [])
    assert page["folds"][0]["tables"][0]["rows"] == [["1", "-"], ["-", "2"]]


def test_of_many_networks_the_first_are_shown_and_the_others_are_folded(tmp_path: Path) -> None:
    rows = [
        {"network": f"n{i}", "sparsity": 0.5, "method": method, "loss": 1.0, "accuracy": 50.0 + i}
        for i in range(MOST_CHARTS + 2)
        for method in ("auto", "magnitude")
    ]
    write_bench(tmp_path, "robustness", rows)
    page = page_of(tmp_path)
    shown = [page["headline"], *page["sections"][0]["charts"]]
    assert len(shown) == MOST_CHARTS
    assert {curve["style"] for curve in shown[0]["series"]} == {"bold", "line"}  # auto is ours
    more, _ = page["folds"]
    assert len(more["charts"]) == 2 + MOST_CHARTS + 2  # the other losses, and all accuracies
    assert len(page["facts"]) == MOST_FACTS


def test_the_time_of_a_method_is_the_mean_of_its_rows(tmp_path: Path) -> None:
    rows = [
        {"network": "a", "method": method, "sparsity": sparsity, "accuracy": 90.0, "seconds": time}
        for method, sparsity, time in (("auto", 0.5, 1.0), ("auto", 0.9, 3.0), ("LAMP", 0.5, 0.5))
    ]
    write_bench(tmp_path, "recovery", rows)
    time = page_of(tmp_path)["sections"][-1]
    found = {row["name"]: (row["value"], row["text"]) for row in time["charts"][0]["rows"]}
    assert found == {"auto": (2.0, "2.00 s"), "LAMP": (0.5, "0.50 s")}


def test_a_long_introduction_is_folded(tmp_path: Path) -> None:
    write_bench(tmp_path)
    (tmp_path / "table1.md").write_text("# title\n\n" + "Long. " * 100)
    page = page_of(tmp_path)
    assert page["sections"][0]["text"] == ""
    assert page["folds"][0]["text"].startswith("Long. Long.")


def test_a_single_benchmark_gives_the_page_its_title(tmp_path: Path) -> None:
    write_bench(tmp_path)
    assert page_of(tmp_path)["title"] == "A title"
    write_bench(tmp_path, "new", [{"a": 1}])
    assert page_of(tmp_path)["title"] != "A title"


def test_every_benchmark_has_its_charts() -> None:
    assert set(VIEWS) == {*BENCHMARKS, "demo"}
