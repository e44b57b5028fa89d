import csv
import json
import sys
from pathlib import Path

import pytest

from chita.errors import ChitaError
from tests.support.command import invoke
from tests.support.messages import naming, says


def run(*arguments: str) -> str:
    return invoke("sensitivity", "mlpnet", "--samples", 200, *arguments)


def test_out_holds_the_figures_and_the_advice_is_said(tmp_path: Path) -> None:
    said = run("--out", str(tmp_path / "s"), "--json")
    record = json.loads(said.splitlines()[-1])
    assert json.loads((tmp_path / "s/sensitivity.json").read_text()) == record
    assert record["samples"] == 200
    assert record["dense_accuracy"] > 95
    assert len(record["rows"]) == 3 * 8
    with (tmp_path / "s/sensitivity.csv").open() as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == [
            row["loss"] for row in record["rows"]
        ]
    assert (tmp_path / "s/sensitivity.png").read_bytes().startswith(b"\x89PNG")
    assert record["at_most"].keys() == {"fc2.weight", "fc3.weight"}  # 3 % of the weights
    assert record["advice"] in said
    assert says(record["advice"], "fc3.weight")


def test_layers_can_be_left_out_and_a_missing_matplotlib_costs_the_figure_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = run("--out", str(tmp_path), "--exclude", "fc1.weight")
    assert "fc2.weight" in said and "fc1.weight" not in said
    assert {path.name for path in tmp_path.iterdir()} == {
        "sensitivity.json",
        "sensitivity.csv",
        "run.json",
    }
    assert says(caplog.text, "sensitivity.png", "matplotlib")


def test_a_sparsity_beyond_the_ladder_is_refused() -> None:
    with pytest.raises(ChitaError, match=naming("sparsity", 0.98, 0.99)):
        run("--sparsity", "0.99")
