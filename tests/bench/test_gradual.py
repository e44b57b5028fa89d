from pathlib import Path
from typing import Any

import pytest

from chita.bench import gradual as module
from chita.bench.benchmark import run_benchmark
from chita.bench.gradual import Gradual
from chita.bench.gradual_paper import MOBILENETV1, RESNET50
from chita.gradual.methods import METHODS
from tests.bench.small import embedded, read_csv


def few(monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    monkeypatch.setattr(module, "METHODS", {name: METHODS[name] for name in methods})


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
    assert "| CHITA | 98.00 | 69.80 | -9.36 | 0.51 M |" in text
    assert (tmp_path / "gradual.png").stat().st_size > 5000
    run_benchmark("gradual", small, embedded(tmp_path), tmp_path)
    assert calls == ["global-magnitude", "rigl"]


def test_one_seed_is_whole_before_the_next_and_chita_comes_first(tmp_path: Path) -> None:
    keys = [cell.key for cell in Gradual().cells(embedded(tmp_path, seeds=2))]
    half = 3 * len(METHODS)
    assert [key["seed"] for key in keys] == [0] * half + [1] * half
    order = list(dict.fromkeys(key["method"] for key in keys))
    assert order[0] == "chita-bso"
    assert order.index("global-magnitude") < order.index("woodfisher") < order.index("m-fac")
    assert set(order) == set(METHODS)
    assert {key["recipe"]["epochs"] for key in keys} == {20}


def test_the_seeds_are_averaged() -> None:
    records = [
        {
            "key": {
                "network": "resnet20",
                "method": "gmp",
                "sparsity": 0.9,
                "seed": s,
                "recipe": {"epochs": 20},
            },
            "dense": 92.0,
            "accuracy": accuracy,
            "weights": 1000,
            "nonzeros": 100,
            "seconds": 1.0,
        }
        for s, accuracy in enumerate((90.0, 88.0))
    ]
    (row,) = Gradual().report(records).rows
    assert row["accuracy"] == 89.0
    assert row["standard_error"] == pytest.approx(1.0)
    assert row["relative_drop"] == pytest.approx(-100 * 3 / 92)
    assert (row["sparsity"], row["remaining"], row["seeds"]) == (90.0, 100, 2)


def test_the_paper_s_chita_is_the_best_at_each_sparsity() -> None:
    for table in (MOBILENETV1, RESNET50):
        for sparsity in {round(row.sparsity / 5) for row in table}:
            part = [row for row in table if round(row.sparsity / 5) == sparsity]
            best = max(part, key=lambda row: row.accuracy)
            assert best.method == "CHITA"
