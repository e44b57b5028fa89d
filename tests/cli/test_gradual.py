import csv
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from chita import apply_masks, zoo
from chita.cli import gradual as command
from chita.data import Batches, load
from chita.errors import ChitaError
from chita.gradual.epoch_file import EpochFile
from chita.model.accuracy import accuracy
from tests.support.command import invoke
from tests.support.messages import naming, says

RECIPE = """
epochs: 4
batch_size: 200
learning_rate: 0.05
pruning_steps: 2
pruning_interval: 0.5
methods: {chita-bso: {samples: 300, batch: 1}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def gradual(*arguments: str | Path) -> dict[str, Any]:
    """The JSON that `chita gradual` ends with."""
    said = invoke("gradual", "mlpnet", "--device", "cpu", "--json", *arguments)
    record: dict[str, Any] = json.loads(said.splitlines()[-1])
    return record


@pytest.mark.slow
def test_the_folder_holds_the_sparse_network_and_its_history(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    record = gradual("--recipe", recipe, "--sparsity", "0.95", "--seed", "2", "--out", out)
    assert {path.name for path in out.iterdir()} == {
        "model.safetensors", "masks.safetensors", "config.yaml", "result.json", "history.csv",
        "history.png", EpochFile.file, "run.json",
    }  # fmt: skip
    assert json.loads((out / "result.json").read_text()) == record
    model = zoo.get("mlpnet").build()
    model.load_state_dict(load_file(out / "model.safetensors"))
    test = load("mnist-slice").test
    assert accuracy(model, Batches(test, 1000)) == record["accuracy"]
    masks = load_file(out / "masks.safetensors")
    assert sum(int(mask.sum()) for mask in masks.values()) == record["nonzeros"] == 1618
    apply_masks(model, masks)  # zero there already
    assert all(torch.equal(model.state_dict()[name] != 0, mask) for name, mask in masks.items())
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert (config["seed"], config["method"], config["sparsity"]) == (2, "chita-bso", 0.95)
    assert config["recipe"]["learning_rate"] == 0.05
    with (out / "history.csv").open(newline="") as file:
        assert [line["pruned"] for line in csv.DictReader(file)] == ["True", "False"] * 2
    assert record["dense_accuracy"] > 96 and record["accuracy"] > 92


@pytest.mark.slow
def test_epochs_in_the_place_of_the_recipes(recipe: Path) -> None:
    record = gradual("--recipe", recipe, "--epochs", "2", "--method", "global-magnitude")
    assert [(row["epoch"], row["pruned"]) for row in record["epochs"]] == [(1, True), (2, True)]


@pytest.mark.slow
def test_from_scratch_needs_no_checkpoint(recipe: Path) -> None:
    record = gradual("--recipe", recipe, "--method", "rigl")
    assert record["dense_accuracy"] is None
    assert record["accuracy"] > 80


@pytest.mark.slow
@pytest.mark.parametrize("method", ["global-magnitude", "rigl"])
def test_distillation_from_the_checkpoint(method: str, recipe: Path, tmp_path: Path) -> None:
    """Also a method that trains from fresh weights has the checkpoint as its teacher."""
    teacher, out = zoo.get("mlpnet").embedded, tmp_path / "run"
    assert teacher is not None
    arguments = ("--checkpoint", teacher.checkpoint, "--data", "mnist-slice", "--out", out)
    record = gradual("--recipe", recipe, "--method", method, "--distill", *arguments)
    assert record["distill"] is True
    assert record["dense_accuracy"] > 96 and record["accuracy"] > 80
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["distill"] is config["recipe"]["distill"] is True


@pytest.mark.slow
def test_a_figure_that_cannot_be_drawn_costs_nothing_else(
    recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ChitaError("figures need matplotlib")

    monkeypatch.setattr(command, "draw_history", missing)
    with caplog.at_level(logging.WARNING):
        gradual("--recipe", recipe, "--method", "global-magnitude", "--out", tmp_path / "run")
    assert says(caplog.text, "history.png", "matplotlib")
    assert (tmp_path / "run/history.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mlpnet", "--method", "none"], naming("method", "chita-bso", "none")),
        (
            ["mlpnet", "--method", "dnw", "--checkpoint", "a.pt"],
            naming("dnw", "--checkpoint", "a.pt", "--distill"),
        ),
        (["mlpnet", "--sparsity", "1"], naming("sparsities", 1.0)),
        (["mlpnet", "--epochs", "3"], naming("epochs=3", "pruning_steps=7")),
        (["mlpnet", "--resume"], naming("--resume", "--out")),
        (["resnet20"], naming("resnet20", "--checkpoint")),
        (["mobilenetv1-folded"], naming("mobilenetv1-folded", "--recipe")),
        (["mlpnet", "--recipe", "none.yaml"], naming("recipe", "none.yaml")),
    ],
)
def test_what_is_wrong_is_told_before_the_work(arguments: list[str], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        invoke("gradual", *arguments)


@pytest.mark.slow
def test_torchrun(recipe: Path, tmp_path: Path) -> None:
    """Two ranks, which share each batch, end with one network, and one of them speaks."""
    run = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            "-m", "chita", "gradual", "mlpnet", "--device", "cpu", "--recipe", str(recipe),
            "--epochs", "2", "--json", "--out", str(tmp_path / "run"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("{"))
    record = json.loads(line)
    alone = gradual("--recipe", recipe, "--epochs", "2")
    assert record["nonzeros"] == alone["nonzeros"] == 3235
    assert abs(record["accuracy"] - alone["accuracy"]) < 1
    assert record["dense_accuracy"] == alone["dense_accuracy"]
    assert load_file(tmp_path / "run/model.safetensors").keys() == {
        f"fc{i}.weight" for i in (1, 2, 3)
    }


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        [
            sys.executable, "-m", "chita", "-v", "gradual", "mlpnet", "--device", "cpu",
            "--recipe", str(recipe), "--epochs", "1000", "--method", "global-magnitude",
            "--out", str(out),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "EpochRow(epoch=2" in line:  # the first is in its file
            break
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    done = EpochFile.done(out)
    assert done is not None and 1 <= done[0] < 1000
    assert says(stderr.splitlines()[-1], f"epoch {done[0]}", 1000, "--resume")
