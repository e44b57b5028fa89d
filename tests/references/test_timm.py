"""Models of timm by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.zoo import find_network, open_trained
from chita.zoo.example import example_inputs
from tests.data.pictures import save_classes
from tests.support.command import invoke
from tests.support.messages import naming
from tests.support.timm_models import import_timm

VIT = "timm:vit_tiny_patch16_224"
SMALL = {"img_size": 32, "embed_dim": 24, "depth": 1, "num_classes": 3}


@pytest.fixture(autouse=True)
def timm() -> None:
    import_timm()


def test_preprocessing_is_that_of_the_published_weights() -> None:
    found = find_network("timm:resnet18").preprocessing
    assert found is not None and (found.size, found.resize) == (224, 235)
    small = find_network(VIT, SMALL)
    assert small.preprocessing is not None and small.preprocessing.mean == (0.5, 0.5, 0.5)
    trained = open_trained(find_network(VIT, SMALL), fresh=True, with_data=False)
    assert example_inputs(trained, 2).shape == (2, 3, 32, 32)
    assert trained.model(example_inputs(trained, 2)).shape == (2, 3)


@pytest.mark.slow
def test_images_in_a_folder(tmp_path: Path) -> None:
    for part in ("train", "val"):
        save_classes(tmp_path / "pictures" / part, classes=3, each=8)
    save_checkpoint(find_network(VIT, SMALL).build(), tmp_path / "vit.safetensors")
    said = invoke(
        "prune", VIT, *(f"--set={name}={value}" for name, value in SMALL.items()),
        "--checkpoint", tmp_path / "vit.safetensors",
        "--data", f"imagefolder:{tmp_path / 'pictures'}", "--sparsity", "0.5",
        "--method", "chita-bso", "--samples", "4", "--batch", "2", "--ridge", "0.01",
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    record = json.loads(said.splitlines()[-1])
    assert record["sparsity"] == pytest.approx(0.5, abs=0.01)
    assert 0 <= record["accuracy"] <= 100  # of the images in val
    model = open_trained(find_network(VIT, SMALL), tmp_path / "run", with_data=False).model
    assert torch.count_nonzero(model.get_parameter("blocks.0.mlp.fc1.weight") == 0)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("timm:resnet19", {}, naming("'resnet19'", "'resnet18'")),
        ("timm:hf-hub:some/model", {}, naming("'hf-hub:some/model'")),
        ("timm:resnet18", {"widht": 3}, naming("timm:resnet18", "widht")),
        ("timm:resnet18", {"img_size": "big"}, naming("img_size", "'big'")),
        ("timm:resnet18", {"model_name": "vgg11"}, naming("model_name")),
        ("timm:resnet18", {"in_chans": "three"}, naming("in_chans", "'three'")),
    ],
)
def test_wrong_names_and_arguments(name: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        find_network(name, arguments).build()


def test_weights_are_never_downloaded_unasked() -> None:
    with pytest.raises(
        ChitaError, match=naming("timm:resnet18", "--checkpoint", "pretrained=true")
    ):
        open_trained("timm:resnet18", data_name="cifar10")
    network = find_network("timm:resnet18", {"pretrained": True, "num_classes": 5})
    assert network.build_trained is not None
    network.build()  # for a checkpoint, without a download
