"""A user's own network in every command, from its reference to the folder of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from chita.errors import ChitaError
from tests.support.command import invoke
from tests.support.messages import naming, says

OWN = """
import torch
from torch import nn

def build(width=8, classes=3):
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, classes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model

def batches(start, stop):
    for number in range(start, stop):
        inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(number))
        yield inputs, build()(inputs).argmax(1)

def calibration():
    yield from batches(0, 6)

test = list(batches(6, 9))

def regression():
    return [(inputs, inputs[:, :2].sum(1)) for inputs, _ in batches(0, 6)]

class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = build(classes=1)

    def forward(self, inputs):
        return self.layers(inputs)[:, 0]

def squares(outputs, targets):
    return (outputs - targets).square().mean()

def random():
    return nn.Linear(4, 3)

meta = nn.Linear(4, 3, device="meta")

def cubes(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets) ** 3
"""
DATA = ("--data", "own_cli.py:calibration")
QUICK = ("--sparsity", "0.5", "--method", "chita-bso", "--batch", "4")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_cli.py").write_text(OWN)
    yield tmp_path
    sys.modules.pop("own_cli", None)


def record(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(*arguments, "--json").splitlines()[-1])
    return found


def prune(*arguments: object) -> dict[str, Any]:
    return record("prune", "own_cli.py:build", *DATA, *QUICK, *arguments)


def test_without_test_data_no_accuracy_is_reported() -> None:
    found = prune("--set", "width=16")
    assert found["accuracy"] is found["test_loss"] is None
    assert found["held_out_loss"] > 0
    assert found["weights"] == 7 * 16
    said = invoke("prune", "own_cli.py:build", *DATA, *QUICK)
    assert says(said, "--test")


def test_the_test_data_give_an_accuracy_or_a_loss() -> None:
    found = prune("--test", "own_cli:test")
    assert found["dense_accuracy"] == 100 and 30 < found["accuracy"] <= 100
    regression = record(
        "prune", "own_cli.py:Flat", "--data", "own_cli.py:regression", "--test",
        "own_cli.py:regression", "--loss", "own_cli.py:squares", *QUICK,
    )  # fmt: skip
    assert regression["accuracy"] is None
    assert regression["loss"] == "own_cli.py:squares"
    assert regression["dense_test_loss"] > 0 and regression["test_loss"] > 0
    distilled = record(
        "prune", "own_cli.py:Flat", "--data", "own_cli.py:regression", "--test",
        "own_cli.py:regression", "--loss", "distill", *QUICK,
    )  # fmt: skip
    assert distilled["dense_test_loss"] == pytest.approx(0, abs=1e-9)
    assert distilled["test_loss"] > 0


def test_a_loss_of_ones_own_is_used() -> None:
    plain, cubed = prune(), prune("--loss", "own_cli.py:cubes")
    assert plain["loss"] is None and cubed["loss"] == "own_cli.py:cubes"
    assert plain["held_out_loss"] != cubed["held_out_loss"]


@pytest.fixture
def run() -> Path:
    prune("--test", "own_cli.py:test", "--set", "width=12", "--out", "run")
    return Path("run")


@pytest.mark.usefixtures("onnx")
def test_the_folder_of_a_run_is_enough_for_the_other_commands(run: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert (config["network"], config["set"]) == ("own_cli.py:build", {"width": 12})
    invoke("pack", run, "packed.safetensors")
    invoke("inspect", run)
    invoke("report", run)
    invoke("export", run, "model.onnx")
    invoke("export", "packed.safetensors", "again.onnx", "--network", "own_cli.py:build",
           "--set", "width=12", *DATA)  # fmt: skip
    speed = record("speed", run, "--batch", "4", "--device", "cpu")
    assert speed["network"] == "own_cli.py:build"
    found = record("recover", run, "--budget", "5 steps", "--out", "recovered")
    assert found["dense_accuracy"] is not None and found["accuracy"] is not None
    again = record("recover", "recovered", "--budget", "5 steps")
    assert again["data"] == DATA[1] and again["accuracy_before"] == found["accuracy"]
    zeros = [load_file(Path(name) / "model.safetensors") for name in ("run", "recovered")]
    for name, tensor in zeros[0].items():
        if name.endswith("weight"):
            assert torch.equal(tensor == 0, zeros[1][name] == 0)


def test_a_network_that_changed_since_is_told_with_what_differs(run: Path) -> None:
    Path("own_cli.py").write_text(
        OWN.replace("nn.ReLU(), ", "nn.ReLU(), nn.Linear(width, width), ")
    )
    sys.modules.pop("own_cli")
    with pytest.raises(ChitaError, match=naming("own_cli.py:build", "3.weight")):
        invoke("export", run, "model.onnx")
    with pytest.raises(ChitaError, match=naming("0.weight", "(12, 4)", "(5, 4)")):
        Path("own_cli.py").write_text(OWN)
        sys.modules.pop("own_cli")
        invoke("export", run, "model.onnx", "--set", "width=5")
    Path("own_cli.py").unlink()
    sys.modules.pop("own_cli")
    with pytest.raises(ChitaError, match=naming("own_cli.py", "file")):
        invoke("speed", run)


def test_sensitivity_and_gradual(folder: Path) -> None:
    found = record("sensitivity", "own_cli.py:build", *DATA, "--samples", "50")
    assert {row["layer"] for row in found["rows"]} == {"0.weight", "2.weight"}
    (folder / "recipe.yaml").write_text(
        "{epochs: 2, batch_size: 20, learning_rate: 0.01, pruning_steps: 1,"
        " methods: {chita-bso: {samples: 40, batch: 1}}}"
    )
    gradual = ("gradual", "own_cli.py:build", *DATA, "--recipe", "recipe.yaml", "--sparsity", "0.5")
    trained = record(*gradual, "--test", "own_cli.py:test", "--out", "trained")
    assert trained["sparsity"] == pytest.approx(0.5, abs=0.02)
    assert trained["dense_accuracy"] == 100 and trained["accuracy"] > 50
    assert record("recover", "trained", "--budget", "3 steps")["accuracy"] > 50
    with pytest.raises(ChitaError, match=naming(DATA[1], "--test")):
        invoke(*gradual)
    with pytest.raises(ChitaError, match=naming("own_cli.py:regression", "classes")):
        invoke(
            *gradual[:2], "--data", "own_cli.py:regression", *gradual[4:], "--test", "own_cli:test"
        )
    with pytest.raises(ChitaError, match=naming("own_cli.py:build", "--recipe")):
        invoke("gradual", "own_cli.py:build", *DATA)


def test_weights_from_a_checkpoint_must_fit(folder: Path) -> None:
    save_file({"0.weight": torch.zeros(8, 4)}, folder / "part.safetensors")
    with pytest.raises(ChitaError, match=naming("part.safetensors", "2.weight")):
        prune("--checkpoint", "part.safetensors")
    with pytest.raises(ChitaError, match=naming("absent.pt")):
        prune("--checkpoint", "absent.pt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("own_cli.py:build",), naming("own_cli.py:build", "--data", "none")),
        (("own_cli.py:build", "--data", "svhn"), naming("--data", "svhn", "FILE.py:NAME")),
        (("own_cli.py:build", "--data", "imagefolder:x"), naming("imagefolder:x", "FILE.py:NAME")),
        (("own_cli.py:build", "--data", "own_cli.py:data"), naming("own_cli.py:data", "'data'")),
        (("own_cli.py", *DATA), naming("'own_cli.py'", "FILE.py:NAME")),
        (("own_cli.py:build", *DATA, "--set", "width"), naming("--set", "'width'")),
        (("own_cli.py:build", *DATA, "--set", "w=1", "--set", "w=2"), naming("--set", "'w'")),
        (("own_cli.py:build", *DATA, "--set", "w=1"), naming("w", "width", "classes")),
        (("own_cli.py:build", *DATA, "--loss", "own_cli.py:OWN"), naming("own_cli.py:OWN")),
        (("own_cli.py:build", *DATA, "--loss", "own_cli.py:test"), naming("own_cli.py:test")),
        (("own_cli.py:build", *DATA, "--val-split", "0.1"), naming("--val-split", 0.1)),
        (("own_cli.py:meta", *DATA), naming("own_cli.py:meta", "cpu")),
        (("timm:", *DATA), naming("timm")),
        (("hf:", *DATA), naming("config.json")),
    ],
)
def test_wrong_references_are_named(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ChitaError, match=message) as error:
        invoke("prune", *arguments, *QUICK)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("onnx")
def test_an_export_needs_an_example(folder: Path) -> None:
    with pytest.raises(ChitaError, match=naming("own_cli.py:build", "--data")):
        invoke("export", "own_cli.py:build", folder / "model.onnx")
    invoke("export", "own_cli.py:build", folder / "model.onnx", *DATA)


def test_the_configuration_of_every_run_can_be_run_again(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(
        "{epochs: 2, batch_size: 20, learning_rate: 0.01, pruning_steps: 1,"
        " methods: {chita-bso: {samples: 40, batch: 1}}}"
    )
    tested = ("--test", "own_cli.py:test")
    prune(*tested, "--loss", "own_cli.py:cubes", "--set", "width=12", "--out", "prune1")
    invoke("gradual", "own_cli.py:build", *DATA, *tested, "--recipe", "recipe.yaml", "--epochs", 3,
           "--sparsity", "0.5", "--seed", 4, "--out", "gradual1")  # fmt: skip
    invoke("recover", "prune1", "--budget", "5 steps", "--out", "recover1")
    (folder / "recipe.yaml").unlink()
    for command in ("prune", "gradual", "recover"):
        first, second = (folder / f"{command}{number}" for number in (1, 2))
        invoke(command, first / "config.yaml", "--out", second)
        for name in ("model.safetensors", "masks.safetensors", "config.yaml"):
            assert (first / name).read_bytes() == (second / name).read_bytes(), (command, name)
    with pytest.raises(ChitaError, match=naming("gradual1/config.yaml", "chita prune")):
        invoke("prune", "gradual1/config.yaml")


def test_recovery_needs_the_weights_before_pruning(folder: Path) -> None:
    invoke("prune", "own_cli.py:random", *DATA, *QUICK, "--out", "run")
    with pytest.raises(ChitaError, match=naming("own_cli.py:random", "--teacher")):
        invoke("recover", "run", "--budget", "3 steps")
    with pytest.raises(ChitaError, match=naming("own_cli.py:build", "zero")):
        invoke("recover", "own_cli.py:build", *DATA)


def test_recovery_by_a_loss_needs_no_dense_network(run: Path, folder: Path) -> None:
    invoke("pack", run, "packed.safetensors")
    arguments = ("packed.safetensors", "--network", "own_cli.py:build", "--set", "width=12", *DATA)
    found = record("recover", *arguments, "--loss", "own_cli.py:cubes", "--budget", "5 steps",
                   "--test", "own_cli.py:test")  # fmt: skip
    assert found["dense_accuracy"] is None and found["accuracy"] is not None


def test_arrays_and_a_loss_by_name(folder: Path) -> None:
    """Data as people have them, in every command that reads some."""
    (folder / "own_cli.py").write_text(
        f"{OWN}\nx = torch.cat([x for x, _ in regression()]).numpy()\n"
        "arrays = (x, x[:, :2].sum(1).astype('int32'))\n"
    )
    own = ("own_cli.py:Flat", "--data", "own_cli.py:arrays")
    network = (*own, "--test", "own_cli.py:arrays", "--loss", "mse")
    found = record("prune", *network, *QUICK, "--out", "run")
    assert found["loss"] == "mse"
    assert found["dense_test_loss"] > 0 and found["test_loss"] > 0
    assert record("sensitivity", *own, "--loss", "mse")["loss"] == "mse"
    trained = record("recover", "run", "--loss", "mse", "--budget", "3 steps")
    assert trained["loss_before"] > 0
    assert trained["test_loss_before"] == pytest.approx(found["test_loss"])
    invoke("speed", "run", "--data", "own_cli.py:arrays")
    alone = (folder / "own_cli.py").read_text() + "\nalone = x\n"
    (folder / "own_cli.py").write_text(alone)
    sys.modules.pop("own_cli", None)
    unlabelled = record("prune", "own_cli.py:build", "--data", "own_cli.py:alone", *QUICK)
    assert unlabelled["loss"] == "distill"
