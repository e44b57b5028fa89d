"""The command `chita recover`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from chita import zoo
from chita.data import Batches, load
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.model.accuracy import accuracy
from tests.support.command import invoke
from tests.support.messages import naming, says
from tests.support.pruning import mlpnet

EMBEDDED = zoo.get("mlpnet").embedded
BRIEF = ("--budget", "40 steps", "--device", "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an MLPNet at 95 %."""
    folder = tmp_path_factory.mktemp("run")
    invoke(
        "prune", "mlpnet", "--method", "magnitude", "--sparsity", "0.95", "--seed", "3",
        "--device", "cpu", "--out", folder,
    )  # fmt: skip
    return folder


def recover(*arguments: object) -> dict[str, Any]:
    """The JSON that `chita recover` ends with."""
    said = invoke("recover", *arguments, *BRIEF, "--json")
    record: dict[str, Any] = json.loads(said.splitlines()[-1])
    return record


def test_the_folder_has_the_trained_network_with_the_same_zeros(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = invoke("recover", run, *BRIEF, "--out", out, "--json")
    record = json.loads(text.splitlines()[-1])
    assert {path.name for path in out.iterdir()} == {
        "model.safetensors", "masks.safetensors", "config.yaml", "result.json", "run.json",
    }  # fmt: skip
    assert json.loads((out / "result.json").read_text()) == record
    assert (record["steps"], record["nonzeros"], record["weights"]) == (40, 1618, 32360)
    assert record["kept"] and record["loss_after"] < 0.5 * record["loss_before"]
    assert record["accuracy_before"] + 5 < record["accuracy"] < record["dense_accuracy"]
    for name in ("dense_accuracy", "accuracy_before", "accuracy"):
        assert f"{record[name]:.2f} %" in text
    assert says(text, f"{record['loss_before']:.4g}", f"{record['loss_after']:.4g}", "95.00%")
    before, after = (load_file(folder / "model.safetensors") for folder in (run, out))
    model = zoo.MLPNet()
    model.load_state_dict(after)
    assert accuracy(model, Batches(load("mnist-slice").test, 1000)) == record["accuracy"]
    for name, mask in load_file(out / "masks.safetensors").items():
        assert torch.equal(before[name] != 0, mask) and torch.equal(after[name] != 0, mask)
        assert not torch.equal(before[name], after[name])
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert (config["network"], config["data"], config["seed"]) == ("mlpnet", "mnist-slice", 3)
    assert (config["source"], config["budget"]) == (str(run), "40 steps")
    again = recover(out)  # a folder of recover is a run folder
    assert again["accuracy_before"] == record["accuracy"]


def test_a_checkpoint_a_teacher_and_a_seed_can_be_given(run: Path, tmp_path: Path) -> None:
    assert EMBEDDED is not None
    given = tmp_path / "pruned.safetensors"
    shutil.copy(run / "model.safetensors", given)
    options = ("--network", "mlpnet", "--data", "mnist-slice", "--teacher", EMBEDDED.checkpoint)
    one, other = (recover(given, *options, "--seed", seed) for seed in (3, 4))
    assert one["teacher"] == str(EMBEDDED.checkpoint)
    of_the_run = recover(run)
    assert one["loss_after"] == of_the_run["loss_after"] != other["loss_after"]


def test_the_teacher_is_the_network_that_the_run_started_from(tmp_path: Path) -> None:
    dense, folder = mlpnet(), tmp_path / "run"
    with torch.no_grad():
        dense.get_parameter("fc3.weight")[4] = 1e-3  # it tells no digit 4
    save_checkpoint(dense, tmp_path / "dense.safetensors")
    pruned = json.loads(
        invoke(
            "prune", "mlpnet", "--method", "magnitude", "--sparsity", "0.5", "--out", folder,
            "--checkpoint", tmp_path / "dense.safetensors", "--data", "mnist-slice",
            "--device", "cpu", "--json",
        ).splitlines()[-1]
    )  # fmt: skip
    record = recover(folder)
    assert record["teacher"] == str(tmp_path / "dense.safetensors")
    assert record["dense_accuracy"] == pruned["dense_accuracy"] < 95
    (tmp_path / "dense.safetensors").unlink()
    with pytest.raises(ChitaError, match=naming("--teacher", "mlpnet", "dense.safetensors")):
        recover(folder)


def test_what_is_wrong_is_refused_before_the_work(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("zero", "pruned", "mlpnet_mnist.safetensors")):
        recover("mlpnet", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    other = tmp_path / "other.safetensors"
    save_checkpoint(zoo.get("resnet20").build(), other)
    with pytest.raises(ChitaError, match=naming("--teacher", "mlpnet", "other.safetensors")):
        recover(run, "--teacher", other)
    wide = {name: tensor.repeat(2, 1) for name, tensor in mlpnet().state_dict().items()}
    save_file(wide, other)
    with pytest.raises(ChitaError, match=naming("--teacher", "mlpnet", "fc1.weight")):
        recover(run, "--teacher", other)
    with pytest.raises(ChitaError, match=naming("--budget", "long")):
        invoke("recover", run, "--budget", "long")
    with pytest.raises(ChitaError, match=naming("--out", str(run))):
        recover(run, "--out", run)
    with pytest.raises(ChitaError, match=naming("none", "mlpnet")):
        recover("none")
    with pytest.raises(ChitaError, match=naming("--data", "cifar10")):
        recover(run, "--data", "cifar10")


def test_a_network_that_does_not_ship_needs_a_teacher(tmp_path: Path) -> None:
    model = zoo.get("resnet20").build()
    with torch.no_grad():
        model.get_parameter("fc.weight")[0] = 0.0
    save_checkpoint(model, tmp_path / "pruned.safetensors")
    with pytest.raises(ChitaError, match=naming("resnet20", "--teacher")):
        recover(tmp_path / "pruned.safetensors", "--network", "resnet20")


def test_another_seed_would_divide_the_images_differently(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config |= {"data": "imagefolder:photos", "val_split": 0.1}
    (folder / "run.json").unlink()  # as in a folder of an older version
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ChitaError, match=naming("--seed", 4, 3, "--val-split", 0.1)):
        recover(folder, "--seed", "4")
