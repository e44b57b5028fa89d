"""The command `chita speed`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import chita
from chita.errors import ChitaError
from chita.files.run_folder import write_run
from tests.support.command import invoke
from tests.support.messages import naming
from tests.support.pruning import mlpnet


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an MLPNet at 98 %."""
    folder = tmp_path_factory.mktemp("run")
    result = chita.prune(mlpnet(), [], sparsity=0.98, method="magnitude", progress=False)
    config = {"network": "mlpnet"}
    write_run(folder, result.model, result.masks, config=config, record=result.to_dict())
    return folder


@pytest.mark.slow
def test_speed_of_a_run(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    text = invoke(
        "speed", run, "--device", "cpu", "--batch", "2", "--batch", "64", "--out", out, "--json"
    )
    record = json.loads(text.splitlines()[-1])
    assert record == json.loads(out.read_text())
    assert (record["network"], record["device"], record["dtype"]) == ("mlpnet", "cpu", "float32")
    assert f"threads: {record['threads']}" in text
    assert [found["batch"] for found in record["batches"]] == [2, 64]
    for found in record["batches"]:
        assert found["advice"] in text
        paths = found["paths"]
        assert {"dense", "compact", "csr", "sums"} <= set(paths)
        gained = {name for name, path in paths.items() if path["times_as_fast"] > 1}
        assert found["use"] in gained | {"dense"}
        assert paths[found["use"]]["median"] <= paths["dense"]["median"]
        assert [row["name"] for row in found["layers"]] == ["fc1", "fc2", "fc3"]


@pytest.mark.slow
def test_a_random_mask_before_any_pruning(tmp_path: Path) -> None:
    """Also for a network that comes without weights."""
    text = invoke("speed", "resnet20", "--at", "2:4", "--device", "cpu", "--batch", "1", "--json")
    record = json.loads(text.splitlines()[-1])
    assert (record["network"], record["at"]) == ("resnet20", "2:4")
    layers = record["batches"][0]["layers"]
    assert {row["sparsity"] for row in layers} == {0.5} and len(layers) == 19
    assert record["batches"][0]["advice"] in text


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("dtype", "float32", "int8")):
        invoke("speed", "mlpnet", "--dtype", "int8")
    with pytest.raises(ChitaError, match=naming(".json", str(tmp_path))):
        invoke("speed", "mlpnet", "--out", tmp_path)
    for wrong in ("half", "4:2", "4x1", "90", "1.0", "-0.5"):
        with pytest.raises(ChitaError, match=naming("--at", wrong, without="sparsity")):
            invoke("speed", "no network, which is read later", "--at", wrong)
