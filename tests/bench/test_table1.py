import json
from pathlib import Path
from typing import Any

import pytest

from chita.bench import table1 as module
from chita.bench.benchmark import run_benchmark
from chita.bench.settings import Setting, paper_grid
from chita.bench.table1 import Table1
from chita.errors import ChitaError
from chita.methods import METHODS
from tests.bench.small import embedded, read_csv

COLUMNS = ["network", "method", "sparsity", "choice", "accuracy", "standard_error", "paper"]
SMALL = {
    "magnitude": Setting("magnitude", "auto", batch=1, samples=100),
    "cbs": Setting("cbs", 1e-3, batch=1, samples=200, first_order=False),
    "chita++": Setting("chita++", 1e-3, batch=16, samples=200, stages=5),
}


def small_grid(network: str, method: str) -> list[Setting]:
    return [SMALL[method]] if method in SMALL else []


SMALL_TABLE = Table1({"mlpnet": (0.98,)}, small_grid)


def test_order_of_the_methods_and_the_table(tmp_path: Path) -> None:
    """CHITA++ > CBS > MP at 98 %."""
    run_benchmark("table1", SMALL_TABLE, embedded(tmp_path), tmp_path)
    rows = read_csv(tmp_path / "table1.csv")
    assert list(rows[0]) == COLUMNS
    grid = {
        row["method"]: row
        for row in rows
        if row["network"] == "mlpnet-embedded" and row["choice"] == "grid"
    }
    accuracy = {method: float(grid[method]["accuracy"]) for method in SMALL}
    assert accuracy["chita++"] > accuracy["cbs"] + 5 > accuracy["magnitude"] + 10
    assert grid["cbs"]["paper"] == "55.45"
    assert grid["obs"]["accuracy"] == "n/a"
    assert set(grid) == set(METHODS) - {"chita-cd", "auto"}  # which has no grid
    imagenet = [row for row in rows if row["network"] in ("mobilenetv1", "resnet50")]
    assert {row["accuracy"] for row in imagenet} == {"needs ImageNet"}
    assert {"47.45", "16.38"} <= {row["paper"] for row in imagenet}
    assert len(json.loads((tmp_path / "table1.json").read_text())["rows"]) == len(rows)
    assert "| CHITA++ | paper | 90.73 |" in (tmp_path / "table1.md").read_text()


def test_an_interrupted_table_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cheap = Table1({"mlpnet": (0.5, 0.9)}, lambda network, method: small_grid(network, method)[:1])
    monkeypatch.setitem(SMALL, "cbs", SMALL["magnitude"])
    monkeypatch.setitem(SMALL, "chita++", SMALL["magnitude"])
    calls: list[float] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["sparsity"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return prune(*args, **kwargs)

    prune = module.prune
    monkeypatch.setattr(module, "prune", counted)
    with pytest.raises(KeyboardInterrupt):
        run_benchmark("table1", cheap, embedded(tmp_path), tmp_path)
    assert read_csv(tmp_path / "table1.csv")[0]["sparsity"] == "0.5"  # what there is so far
    run_benchmark("table1", cheap, embedded(tmp_path), tmp_path)
    assert calls == [0.5, 0.9, 0.9]
    run_benchmark("table1", cheap, embedded(tmp_path), tmp_path)
    assert len(calls) == 3


def record(ridge: float | str, seed: int, accuracy: float, **key: Any) -> dict[str, Any]:
    base = {"network": "mlpnet", "sparsity": 0.9, "method": "cbs", "batch": 1, "samples": 1000}
    return {"key": {**base, "ridge": ridge, "seed": seed, **key}, "accuracy": accuracy}


def row_of(records: list[dict[str, Any]], choice: str) -> dict[str, Any]:
    rows = Table1().report(records).rows
    return next(
        dict(row)
        for row in rows
        if (row["network"], row["method"], row["choice"]) == ("mlpnet", "cbs", choice)
    )


def test_grid_takes_the_best_mean_and_auto_its_own() -> None:
    records = [record(1e-3, 0, 90.0), record(1e-3, 1, 92.0), record(1e-2, 0, 95.0)]
    records += [record(1e-2, 1, 85.0), record("auto", 0, 93.0), record("auto", 1, 93.5)]
    grid, auto = row_of(records, "grid"), row_of(records, "auto")
    assert grid["accuracy"] == pytest.approx(91.0)
    assert grid["standard_error"] == pytest.approx(1.0)
    assert grid["paper"] == 93.14
    assert auto["accuracy"] == pytest.approx(93.25)


def test_settings_with_fewer_seeds_do_not_compete() -> None:
    records = [record(1e-3, 0, 90.0), record(1e-3, 1, 92.0), record(1e-2, 0, 99.0)]
    assert row_of(records, "grid")["accuracy"] == pytest.approx(91.0)
    assert row_of(records[2:], "grid")["accuracy"] == pytest.approx(99.0)
    assert row_of(records[2:], "grid")["standard_error"] is None


def test_settings_of_other_options_are_told_apart() -> None:
    """A key without an option has its default: these two are one setting."""
    records = [record(1e-3, 0, 90.0), record(1e-3, 1, 92.0, hold=0.0, block_size=None)]
    assert row_of(records, "grid")["accuracy"] == pytest.approx(91.0)
    records[1]["key"]["block_size"] = 2000
    assert row_of(records, "grid")["accuracy"] == pytest.approx(92.0)


@pytest.mark.parametrize("network", ["mlpnet", "resnet20"])
def test_the_paper_s_grid(network: str) -> None:
    for method in set(METHODS) - {"chita-cd"}:
        settings = paper_grid(network, method)
        assert len(set(settings)) == len(settings)
        assert {setting.method for setting in settings} <= {method}
        assert bool(settings) == ((network, method) != ("resnet20", "obs"))
    rivals = paper_grid(network, "woodfisher")
    assert {setting.ridge for setting in rivals} == {"auto", 1e-5, 1e-4, 1e-3, 1e-2}
    assert {setting.block_size for setting in rivals} == {2000 if network == "resnet20" else None}


def test_a_method_that_fails_is_told_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scarce(*args: Any, **kwargs: Any) -> Any:
        if kwargs["method"] == "cbs":
            raise ChitaError("cbs needs 99 GB")
        return prune(*args, **kwargs)

    prune = module.prune
    monkeypatch.setattr(module, "prune", scarce)
    monkeypatch.delitem(SMALL, "chita++")
    run_benchmark("table1", SMALL_TABLE, embedded(tmp_path), tmp_path)
    by_method = {row["method"]: row["accuracy"] for row in read_csv(tmp_path / "table1.csv")[:22]}
    assert by_method["cbs"] == "n/a"
    assert float(by_method["magnitude"]) > 30
