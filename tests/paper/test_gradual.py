from pathlib import Path
from typing import Any

import pytest

from chita.gradual.registry import METHODS
from chita.paper import gradual as module
from chita.paper.benchmark import run_benchmark
from chita.paper.gradual import Gradual
from chita.report.figures import new_figure
from chita.report.published import MOBILENETV1, RESNET50
from tests.paper.small import embedded, read_csv


def few(monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    monkeypatch.setattr(module, "METHODS", {name: METHODS[name] for name in methods})


@pytest.mark.slow
def test_the_table_is_made_of_cells_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, "global-magnitude", "rigl")
    calls: list[str] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["method"])
        return train_sparse(*args, **kwargs)

    train_sparse = module.train_sparse
    monkeypatch.setattr(module, "train_sparse", counted)
    small = Gradual((0.9,), epochs=7, settings={"rigl": {"every": 50}})
    run_benchmark("gradual", small, embedded(tmp_path), tmp_path)
    rows = {row["method"]: row for row in read_csv(tmp_path / "gradual.csv")}
    magnitude, rigl = rows["Global Magnitude"], rows["RigL + ERK"]
    assert float(magnitude["accuracy"]) > 95
    assert float(rigl["accuracy"]) > 85
    assert int(magnitude["remaining"]) == 3235  # floor of a tenth of 32,360, as 1 - 0.9 has it
    assert (magnitude["epochs"], magnitude["seeds"], rigl["from_scratch"]) == ("7", "1", "True")
    drop = 100 * (float(rigl["accuracy"]) - float(rigl["dense"])) / float(rigl["dense"])
    assert float(rigl["relative_drop"]) == pytest.approx(drop)
    text = (tmp_path / "gradual.md").read_text()
    assert "| RigL + ERK * | 90." in text
    assert "| Dense, same epochs * | 0.00 |" in text
    dense = rows["Dense, same epochs"]
    assert (dense["target"], dense["remaining"], dense["seeds"]) == ("0.0", "32360", "1")
    assert float(rigl["accuracy"]) < float(dense["accuracy"]) < 100
    assert "| CHITA | 98.00 | 69.80 | -9.36 | 0.51 M |" in text
    assert (tmp_path / "gradual.png").stat().st_size > 5000
    run_benchmark("gradual", small, embedded(tmp_path), tmp_path)
    assert calls == ["global-magnitude", "rigl", "dense"]


def test_distillation_is_part_of_a_key_only_if_it_is_used(tmp_path: Path) -> None:
    plain, distilled = (
        [cell.key for cell in Gradual(distill=distill).cells(embedded(tmp_path))]
        for distill in (False, True)
    )
    assert all("distill" not in key["recipe"] for key in plain)
    assert all(key["recipe"].pop("distill") is True for key in distilled)
    assert plain == distilled


def test_one_seed_is_whole_before_the_next_and_chita_comes_first(tmp_path: Path) -> None:
    keys = [cell.key for cell in Gradual().cells(embedded(tmp_path, seeds=2))]
    half = 3 * len(METHODS) + 1
    assert [key["seed"] for key in keys] == [0] * half + [1] * half
    order = list(dict.fromkeys(key["method"] for key in keys))
    assert order[0] == "chita-bso"
    assert order.index("global-magnitude") < order.index("woodfisher") < order.index("m-fac")
    assert set(order) == {*METHODS, "dense"}
    assert {key["recipe"]["epochs"] for key in keys} == {20}


def test_the_reference_has_one_cell_for_each_seed(tmp_path: Path) -> None:
    keys = [cell.key for cell in Gradual().cells(embedded(tmp_path, seeds=2))]
    dense = [key for key in keys if key["method"] == "dense"]
    assert [(key["sparsity"], key["seed"]) for key in dense] == [(0.0, 0), (0.0, 1)]
    chita = next(key for key in keys if key["method"] == "chita-bso")
    assert {**dense[0]["recipe"], "methods": {}} == {**chita["recipe"], "methods": {}}


def test_cells_of_methods_that_changed_are_not_taken(tmp_path: Path) -> None:
    """Rivals keep their first layer dense, and CHITA drops dead columns."""
    keys = [cell.key for cell in Gradual().cells(embedded(tmp_path))]
    assert {key["method"] for key in keys if key.get("version") == 2} == {
        "incremental", "snfs", "dnw", "chita-bso", "chita++",
    }  # fmt: skip


def records(method: str, *accuracies: float, sparsity: float = 0.9) -> list[dict[str, Any]]:
    """Cells of a method, one for each seed."""
    return [
        {
            "key": {
                "network": "resnet20",
                "method": method,
                "sparsity": sparsity,
                "seed": s,
                "recipe": {"epochs": 20},
            },
            "dense": 92.0,
            "accuracy": accuracy,
            "weights": 1000,
            "nonzeros": round(1000 * (1 - sparsity)),
            "seconds": 1.0,
        }
        for s, accuracy in enumerate(accuracies)
    ]


def test_the_seeds_are_averaged() -> None:
    (row,) = Gradual().report(records("gmp", 90.0, 88.0)).rows
    assert row["accuracy"] == 89.0
    assert row["standard_error"] == pytest.approx(1.0)
    assert row["relative_drop"] == pytest.approx(-100 * 3 / 92)
    assert (row["sparsity"], row["remaining"], row["seeds"]) == (90.0, 100, 2)


COMPARED = [
    *records("chita-bso", 90.0, 90.2, 90.4),  # 90.2 (0.115)
    *records("global-magnitude", 90.4, 90.5, 90.6),  # 90.5 (0.058), the best
    *records("gmp", 89.9, 90.0, 90.1),  # 90.0 (0.058), 0.5 below, and 2 * 0.082 is less
    *records("dense", 91.0, 91.1, 91.2, sparsity=0.0),
]


def test_what_the_seeds_do_not_tell_from_the_best_is_marked() -> None:
    report = Gradual().report(COMPARED)
    marks = {row["method"]: row["near_best"] for row in report.rows}
    assert marks == {
        "Dense, same epochs": None,
        "CHITA": False,  # 0.3 below, and 2 * hypot(0.115, 0.058) is 0.26
        "Global Magnitude": True,
        "GMP": False,
    }
    wider = [*records("chita-bso", 89.9, 90.2, 90.5), *COMPARED[3:]]  # 90.2 (0.17)
    report = Gradual().report(wider)
    assert "| CHITA | 90.00 | **90.20** (0.17) |" in report.text
    assert "| Global Magnitude | 90.00 | **90.50** (0.06) |" in report.text
    assert "| GMP | 90.00 | 90.00 (0.06) |" in report.text
    assert "| Dense, same epochs * | 0.00 | 91.10 (0.06) |" in report.text
    assert "two standard errors" in report.text


def test_one_seed_gives_no_marks() -> None:
    report = Gradual().report([*records("chita-bso", 90.0), *records("gmp", 80.0)])
    assert [row["near_best"] for row in report.rows] == [None, None]
    assert "| CHITA | 90.00 | 90.00 |" in report.text
    assert "standard error" not in report.text


def test_the_figure_keeps_the_order_of_the_table() -> None:
    figure = new_figure()
    Gradual().report(COMPARED).draw(figure)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["Dense, same epochs *", "CHITA", "Global Magnitude", "GMP"]
    assert axes.yaxis_inverted()  # the first one on top


def test_a_report_on_the_reference_alone() -> None:
    report = Gradual().report(records("dense", 91.0, sparsity=0.0))
    report.draw(new_figure())
    assert "| Dense, same epochs * | 0.00 | 91.00 |" in report.text


def test_the_paper_s_chita_is_the_best_at_each_sparsity() -> None:
    for table in (MOBILENETV1, RESNET50):
        for sparsity in {round(row.sparsity / 5) for row in table}:
            part = [row for row in table if round(row.sparsity / 5) == sparsity]
            best = max(part, key=lambda row: row.accuracy)
            assert best.method == "CHITA"
