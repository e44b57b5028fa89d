"""The command `chita prune`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from chita import apply_masks, zoo
from chita.errors import ChitaError
from chita.pruning.resume import StageFile
from tests.support.command import invoke
from tests.support.messages import naming, says

EMBEDDED = zoo.NETWORKS["mlpnet"].embedded


def prune(*arguments: str) -> dict[str, Any]:
    """The JSON that `chita prune` ends with."""
    said = invoke("prune", "mlpnet", "--json", *arguments)
    record: dict[str, Any] = json.loads(said.splitlines()[-1])
    return record


def test_json_has_what_is_promised() -> None:
    record = prune("--sparsity", "0.9", "--method", "chita-bso", "--samples", "100", "--seed", "3")
    assert record["method"] == "chita-bso"
    assert record["network"] == "mlpnet"
    assert record["nonzeros"] == 3235
    assert record["sparsity"] == pytest.approx(0.9, abs=1e-4)
    assert record["dense_accuracy"] > 96
    assert 80 < record["accuracy"] < record["dense_accuracy"]
    assert record["objective"] > 0
    assert set(record["seconds"]) == {"gradients", "solve", "held_out", "recovery", "total"}
    assert record["peak_memory_bytes"] > 10_000_000
    assert record["seed"] == 3


@pytest.mark.slow
def test_a_sparsity_may_be_a_pattern() -> None:
    record = prune("--sparsity", "2:4", "--method", "obd", "--samples", "50", "--ridge", "0.001")
    assert (record["pattern"], record["groups"]) == ("2:4", {"2": 32360 // 4})
    tiles = prune("--sparsity", "0.5", "--pattern", "5x4", "--method", "magnitude")
    assert set(tiles["groups"]) == {"0", "20"}
    for arguments, message in (
        (("--sparsity", "half"), naming("sparsity", "N:M", "half")),
        (
            ("--sparsity", ""),
            naming("sparsity", "N:M", "''"),
        ),  # a variable of the shell that is not set
        (("--sparsity", "2:3", "--strict"), naming("pattern", "2:3", "fc1.weight", "exclude")),
        (("--sparsity", "0.9", "--strict"), naming("strict=True", "pattern")),
    ):
        with pytest.raises(ChitaError, match=message):
            prune("--method", "magnitude", *arguments)


def test_dead_weights_may_be_kept() -> None:
    """Those of the border of the images, where none of these has ink."""
    arguments = ("--sparsity", "0.9", "--method", "chita-bso", "--samples", "50", "--ridge", "0.01")
    dead, kept = (
        prune(*arguments, *more)["stages"][0]["dead"] for more in ([], ["--no-drop-dead"])
    )
    assert dead > 100 and kept == 0


@pytest.mark.slow
def test_stages_beat_magnitude() -> None:
    magnitude = prune("--sparsity", "0.95", "--method", "magnitude")
    many = prune("--sparsity", "0.95", "--stages", "6", "--samples", "300", "--ridge", "0.001")
    assert magnitude["objective"] is None
    assert many["accuracy"] > magnitude["accuracy"] + 5
    assert len(many["stages"]) == 6


def test_out_holds_the_model_the_masks_and_the_story(tmp_path: Path) -> None:
    record = prune(
        "--out", str(tmp_path / "run"), "--method", "chita-bso", "--samples", "50", "--exclude",
        "fc3.weight",
    )  # fmt: skip
    tensors = load_file(tmp_path / "run/model.safetensors")
    masks = load_file(tmp_path / "run/masks.safetensors")
    model = zoo.MLPNet()
    assert set(tensors) == set(model.state_dict())
    assert set(masks) == {"fc1.weight", "fc2.weight"}
    model.load_state_dict(tensors)
    apply_masks(model, masks)
    assert all(torch.equal(model.state_dict()[name], tensors[name]) for name in tensors)
    assert json.loads((tmp_path / "run/result.json").read_text()) == record
    config = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert config["samples"] == 50
    assert config["reestimate_bn"] is False and config["val_split"] is None
    assert config["exclude"] == ["fc3.weight"]


@pytest.mark.slow
def test_same_seed_same_result() -> None:
    arguments = ("--samples", "100", "--stages", "2", "--seed", "5")
    first, second = prune(*arguments), prune(*arguments)
    for record in (first, second):
        for row in [record, *record["stages"]]:
            for name in (
                "seconds",
                "gradient_seconds",
                "solve_seconds",
                "held_out_seconds",
                "recovery_seconds",
                "peak_memory_bytes",
            ):
                row.pop(name, None)
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prune", "lenet"], naming("lenet", "mlpnet")),
        (["prune", "resnet20"], naming("resnet20", "--checkpoint")),
        (["prune", "mlpnet", "--sparsity", "1"], naming("sparsity", 1.0)),
        (["prune", "mlpnet", "--ridge", "small"], naming("ridge", "small")),
        (["prune", "mlpnet", "--memory", "some"], naming("memory", "8GB", "some")),
        (["prune", "mlpnet", "--memory", "20MB"], naming("memory=20 MB")),
        (["prune", "mlpnet", "--storage", "int8"], naming("storage", "bfloat16", "int8")),
        (["prune", "mlpnet", "--data", "svhn"], naming("--data", "svhn")),
        (["prune", "mlpnet", "--include", "conv*"], naming("include", "conv*", "fc1.weight")),
        (["prune", "mlpnet", "--samples", "50000"], naming("samples=50000", 17000)),
        (["prune", "mlpnet", "--device", "toaster"], naming("device", "toaster")),
        (["prune", "mlpnet", "--checkpoint", "none.safetensors"], "none.safetensors"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        invoke(*arguments)


def test_checkpoint_with_other_keys_is_named(tmp_path: Path) -> None:
    assert EMBEDDED is not None
    tensors = load_file(EMBEDDED.checkpoint)
    tensors["extra.weight"] = tensors.pop("fc2.weight")
    save_file(tensors, tmp_path / "other.safetensors")
    arguments = ["prune", "mlpnet", "--data", "mnist-slice", "--checkpoint"]
    with pytest.raises(ChitaError, match=r"fc2\.weight.*extra\.weight"):
        invoke(*arguments, tmp_path / "other.safetensors")


def test_output_folder_is_tried_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "file"))):
        invoke("prune", "mlpnet", "--out", tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["prune", "mlpnet", "--data", "cifar10"],
            naming("--data", "mnist", "mnist-slice", "cifar10"),
        ),
        (["prune", "mlpnet", "--device", "meta"], naming("device", "meta")),
    ],
)
def test_what_does_not_go_together_is_told_first(arguments: list[str], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        invoke(*arguments)


@pytest.mark.slow
def test_a_run_in_the_folder_is_gone_on_with_or_left_alone(tmp_path: Path) -> None:
    """One that was finished takes no time to resume; one that was not is refused without."""
    arguments = ("--samples", "30", "--stages", "3", "--out", str(tmp_path))
    first = prune(*arguments, "--resume")
    again = prune(*arguments, "--resume")
    assert again["stages"] == first["stages"]  # their times as well
    assert again["accuracy"] == first["accuracy"]
    with pytest.raises(ChitaError, match=naming("stages", 3, 4)):
        prune(*arguments, "--resume", "--stages", "4")
    with pytest.raises(ChitaError, match=naming("data", "seed", 0, 1)):
        prune(*arguments, "--resume", "--seed", "1")
    stored = StageFile.read(tmp_path / StageFile.file)
    StageFile(tmp_path, run=stored.run, stages=9).write(stored.finished)
    with pytest.raises(
        ChitaError, match=naming("stage 3", 9, "stage.safetensors", re.compile("resume"))
    ):
        prune(*arguments, "--data", "none")  # is told before anything else is looked at


def test_resume_needs_a_folder() -> None:
    with pytest.raises(ChitaError, match=naming("--resume", "--out")):
        prune("--resume")


def test_layers_share_the_zeros_as_they_are_told() -> None:
    def layers(*arguments: str) -> list[int]:
        found = prune("--method", "magnitude", *arguments)
        assert found["nonzeros"] == 3235
        return [row["nonzeros"] for row in found["layers"]]

    assert layers("--allocation", "uniform") == [3135, 80, 20]
    assert layers("--layer", "fc2*=0.5", "--layer", "fc3*=0.25") == [2685, 400, 150]
    limited = layers("--at-most", "fc3*=0", "--at-least", "fc2*=0.75", "--at-least", "fc1*=0.85")
    assert limited[2] == 200 and limited[1] <= 200
    with pytest.raises(ChitaError, match=naming("--allocation", "erk", "--layer")):
        layers("--allocation", "erk", "--layer", "fc2*=0.5")


def test_pruning_without_labels() -> None:
    record = prune("--loss", "distill", "--method", "chita-bso", "--samples", "100")
    assert (record["loss"], record["nonzeros"]) == ("distill", 3235)
    assert record["accuracy"] > 80
    with pytest.raises(ChitaError, match=naming("loss", "distill", "labels")):
        prune("--loss", "labels")


@pytest.mark.slow
def test_a_floor_in_place_of_a_sparsity() -> None:
    """The most to try is then 0.99, or what is asked for."""
    arguments = ("--max-loss-increase", "0.05", "--samples", "100", "--stages", "6")
    found = prune(*arguments)
    assert 0.5 < found["sparsity"] < 0.99
    assert found["accuracy"] > found["dense_accuracy"] - 5
    assert prune(*arguments, "--sparsity", "0.3")["sparsity"] == pytest.approx(0.3, abs=1e-4)


def test_a_report_needs_a_folder_and_is_written_there(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("--report", "--out")):
        prune("--report")
    prune("--report", "--method", "magnitude", "--out", str(tmp_path))
    assert says((tmp_path / "report.html").read_text(), re.compile("<title>[^<]*mlpnet"))
