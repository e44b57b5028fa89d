import json
from pathlib import Path
from typing import Any

import pytest

from chita.errors import ChitaError
from chita.methods import METHODS
from chita.paper import table1 as module
from chita.paper.benchmark import run_benchmark
from chita.paper.settings import Setting, paper_grid
from chita.paper.table1 import ENTRIES, Table1
from tests.paper.small import embedded, read_csv
from tests.support.messages import says

COLUMNS = [
    "network", "method", "sparsity", "choice", "accuracy", "standard_error", "paper", "seeds",
    "setting", "grid_size",
]  # fmt: skip
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
    accuracy = {name: float(grid[name]["accuracy"]) for name in ("CHITA++", "CBS", "MP")}
    assert accuracy["CHITA++"] > accuracy["CBS"] + 5 > accuracy["MP"] + 10
    assert grid["CBS"]["paper"] == "55.45"
    assert grid["CBS"]["setting"] == "lambda=0.001, n=200, m=1"
    assert (grid["CBS"]["seeds"], grid["CBS"]["grid_size"]) == ("1", "1")
    assert (grid["OBS"]["accuracy"], grid["OBS"]["setting"]) == ("n/a", "")
    assert set(grid) == {entry.title for entry in ENTRIES if entry.main}
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
        return prune(*args, **{"recover": False, **kwargs})

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


def row_of(records: list[dict[str, Any]], choice: str, method: str = "CBS") -> dict[str, Any]:
    rows = Table1().report(records).rows
    return next(
        dict(row)
        for row in rows
        if (row["network"], row["method"], row["choice"]) == ("mlpnet", method, choice)
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
        return prune(*args, **{"recover": False, **kwargs})

    prune = module.prune
    monkeypatch.setattr(module, "prune", scarce)
    monkeypatch.delitem(SMALL, "chita++")
    run_benchmark("table1", SMALL_TABLE, embedded(tmp_path), tmp_path)
    by_method = {row["method"]: row["accuracy"] for row in read_csv(tmp_path / "table1.csv")[:22]}
    assert by_method["CBS"] == "n/a"
    assert float(by_method["MP"]) > 30


CHITA = {"method": "chita-bso", "first_order": False}
PAPER_STAGES = {"method": "chita++", "batch": 16, "stages": 15, "schedule": "exponential"}


def test_continuation_has_a_row_of_its_own() -> None:
    """It is not in the paper: its settings must not win in the paper's row."""
    records = [record(1e-3, 0, 92.0, **CHITA), record(1e-2, 0, 91.0, **CHITA)]
    records.append(record(1e-3, 0, 99.0, **CHITA, continuation=15))
    chita = row_of(records, "grid", "CHITA")
    assert (chita["accuracy"], chita["paper"], chita["grid_size"]) == (92.0, 92.46, 2)
    assert chita["setting"] == "lambda=0.001, n=1000, m=1"
    continued = row_of(records, "grid", "CHITA, continuation")
    assert (continued["accuracy"], continued["paper"], continued["grid_size"]) == (99.0, None, 1)
    assert continued["setting"] == "lambda=0.001, n=1000, m=1, continuation=15"
    methods = {row["method"] for row in Table1().report(records[:2]).rows}
    assert "CHITA, continuation" not in methods  # nothing was measured


def test_the_paper_s_stages_have_a_row_of_their_own() -> None:
    records = [record(1e-3, 0, 95.5, **PAPER_STAGES), record("auto", 0, 95.0, **PAPER_STAGES)]
    records.append(record(1e-3, 0, 96.5, **{**PAPER_STAGES, "schedule": "polynomial"}))
    records.append(record(1e-3, 0, 96.0, **PAPER_STAGES, hold=0.33))
    theirs = row_of(records, "grid", "CHITA++, paper's 15 stages")
    assert (theirs["accuracy"], theirs["paper"], theirs["grid_size"]) == (95.5, 95.55, 1)
    expected = "lambda=0.001, first_order, n=1000, m=16, stages=15, schedule=exponential"
    assert theirs["setting"] == expected
    assert row_of(records, "auto", "CHITA++, paper's 15 stages")["accuracy"] == 95.0
    ours = row_of(records, "grid", "CHITA++")
    assert (ours["accuracy"], ours["paper"], ours["grid_size"]) == (96.5, 95.55, 2)


def test_the_text_states_the_sizes_of_the_grids() -> None:
    records = [record(ridge, 0, 92.0, **CHITA) for ridge in (1e-3, 1e-2, "auto")]
    records += [record(1e-3, 0, 90.0), record(1e-3, 0, 80.0, sparsity=0.95)]
    records.append(record(1e-2, 0, 81.0, sparsity=0.95))
    text = Table1().report(records).text
    assert says(text, "CBS 1 to 2; CHITA 2")
    assert "| OBD | paper |" not in text  # the paper has no figures for it
    assert "| CBS | paper | 93.14 | 88.92 |" in text


def test_cells_of_another_version_are_computed_again(tmp_path: Path) -> None:
    """A figure measured before dead columns were dropped must not be taken for one of now."""
    chita = Setting("chita-bso", 1e-3, batch=1, samples=100, first_order=False)
    settings = {"chita-bso": [chita], "cbs": [SMALL["cbs"]]}
    table = Table1({"mlpnet": (0.9,)}, lambda network, method: settings.get(method, []))
    keys = {cell.key["method"]: cell.key for cell in table.cells(embedded(tmp_path))}
    assert "version" not in keys["cbs"]  # nothing changed for it
    old = {name: value for name, value in keys["chita-bso"].items() if name != "version"}
    lines = [json.dumps({"key": key, "accuracy": 1.0}) + "\n" for key in (old, keys["cbs"])]
    (tmp_path / "cells.jsonl").write_text("".join(lines))
    run_benchmark("table1", table, embedded(tmp_path), tmp_path)
    rows = [r for r in read_csv(tmp_path / "table1.csv") if r["network"] == "mlpnet-embedded"]
    accuracy = {row["method"]: row["accuracy"] for row in rows if row["choice"] == "grid"}
    assert float(accuracy["CBS"]) == 1.0
    assert float(accuracy["CHITA"]) > 50
