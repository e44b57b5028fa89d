"""`chita prune` and `chita train` over folders of pictures."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from chita import ChitaError, zoo
from chita.data import Preprocessing, RandomResizedCrop
from chita.files.checkpoint import save_checkpoint
from chita.zoo.training import initialise
from tests.data.pictures import save_classes
from tests.support.command import invoke
from tests.support.messages import naming, says


@pytest.fixture(autouse=True)
def small_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks take any size; this one takes seconds."""
    for name, network in zoo.NETWORKS.items():
        if network.preprocessing is not None:
            wanted: Preprocessing = replace(network.preprocessing, size=32, resize=36)
            recipe = replace(network.recipe, batch_size=4, augment=RandomResizedCrop(32))
            small = replace(network, preprocessing=wanted, recipe=recipe)
            monkeypatch.setitem(zoo.NETWORKS, name, small)


def untrained(name: str, folder: Path) -> Path:
    model = zoo.get(name).build()
    initialise(model, torch.Generator().manual_seed(0))
    save_checkpoint(model, folder / f"{name}.safetensors")
    return folder / f"{name}.safetensors"


@pytest.mark.slow
def test_prune_over_train_and_val(tmp_path: Path) -> None:
    name = "mobilenetv1-folded"
    for part in ("train", "val"):
        save_classes(tmp_path / "pictures" / part, classes=3, each=4)
    record: dict[str, Any] = json.loads(
        invoke(
            "prune", name, "--checkpoint", untrained(name, tmp_path),
            "--data", f"imagefolder:{tmp_path / 'pictures'}", "--sparsity", "0.8",
            "--method", "chita-bso", "--samples", "4", "--batch", "2", "--ridge", "0.01",
            "--block-size", "20000", "--out", tmp_path / "out", "--json",
        ).splitlines()[-1]
    )  # fmt: skip
    assert record["sparsity"] == pytest.approx(0.8)
    assert record["samples"] == 4
    assert record["data"] == f"imagefolder:{tmp_path / 'pictures'}"
    tensors = load_file(tmp_path / "out/model.safetensors")
    assert set(tensors) == set(zoo.get(name).build().state_dict())
    zeros = sum(int((tensor == 0).sum()) for key, tensor in tensors.items() if tensor.ndim > 1)
    assert zeros == 4_209_088 - record["nonzeros"] == pytest.approx(0.8 * 4_209_088, abs=1)


@pytest.mark.slow
def test_prune_over_one_folder_that_is_split(tmp_path: Path) -> None:
    save_classes(tmp_path / "pictures", classes=2, each=4)
    record: dict[str, Any] = json.loads(
        invoke(
            "prune", "mobilenetv1", "--checkpoint", untrained("mobilenetv1", tmp_path),
            "--data", f"imagefolder:{tmp_path / 'pictures'}", "--val-split", "0.25",
            "--method", "magnitude", "--reestimate-bn", "--json",
        ).splitlines()[-1]
    )  # fmt: skip
    assert record["val_split"] == 0.25
    assert record["nonzeros"] == pytest.approx(0.1 * 4_209_088, abs=1)
    assert record["accuracy"] in (0, 50, 100)  # two pictures to test with


def test_train_with_random_crops(tmp_path: Path) -> None:
    save_classes(tmp_path / "pictures", classes=2, each=4)
    said = invoke(
        "train", "mobilenetv1", "--data", f"imagefolder:{tmp_path / 'pictures'}",
        "--val-split", "0.25", "--epochs", "1", "--out", tmp_path / "new.safetensors",
    )  # fmt: skip
    assert says(said, str(tmp_path / "new.safetensors"))
    assert load_file(tmp_path / "new.safetensors")["stem.bn.num_batches_tracked"] == 2


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prune", "resnet50"], naming("resnet50", "--data", "imagefolder:DIR", "none")),
        (
            ["prune", "resnet50", "--data", "mnist"],
            naming("resnet50", "--data", "imagefolder:DIR", "mnist"),
        ),
        (["train", "mobilenetv1"], naming("mobilenetv1", "--data", "imagefolder:DIR")),
        (
            ["prune", "resnet50", "--data", "imagefolder:x"],
            naming("resnet50", "--checkpoint", "chita weights get resnet50"),
        ),
        (
            ["prune", "resnet20", "--data", "imagefolder:x"],
            naming("resnet20", "--data", "cifar10", "imagefolder:x"),
        ),
        (
            ["prune", "mlpnet", "--val-split", "0.1"],
            naming("--val-split", "--data", "imagefolder:DIR", 0.1),
        ),
        (["train", "mobilenetv1", "--data", "imagefolder:nowhere"], naming("nowhere")),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChitaError, match=message):
        invoke(*arguments)
