"""Trained networks, as users refer to them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import chita
from chita import zoo
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.files.run_folder import write_run
from chita.model.accuracy import accuracy
from chita.zoo.example import random_images
from chita.zoo.find_trained import find_trained
from chita.zoo.given_network import find_network
from chita.zoo.resnet50 import KERAS, TORCHVISION, Variant
from chita.zoo.trained import Trained, open_trained
from tests.support.messages import naming
from tests.support.pruning import mlpnet, same, snapshot


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run, in which all weights of MLPNet are doubled."""
    model = mlpnet()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    write_run(tmp_path, model, {}, config={"network": "mlpnet"}, record={})
    return tmp_path


def doubled() -> dict[str, torch.Tensor]:
    return {name: 2 * tensor for name, tensor in snapshot(mlpnet()).items()}


def test_a_network_its_run_and_its_checkpoint(run: Path, tmp_path: Path) -> None:
    known, checkpoint = find_trained("mlpnet")
    model = open_trained(known, checkpoint).model
    assert known.name == "mlpnet" and same(snapshot(model), snapshot(mlpnet()))
    alone = tmp_path / "elsewhere"
    alone.mkdir()
    shutil.copy(run / "model.safetensors", alone / "m.safetensors")
    chita.save(open_trained(*find_trained(str(run))).model, alone / "packed.safetensors")
    for source, network in (
        (run, None),
        (run / "model.safetensors", None),
        (alone / "m.safetensors", "mlpnet"),
        (alone / "packed.safetensors", "mlpnet"),
    ):
        known, checkpoint = find_trained(str(source), network)
        model = open_trained(known, checkpoint).model
        assert known.name == "mlpnet" and same(snapshot(model), doubled())


def test_a_run_that_is_named_like_a_network_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlpnet").mkdir()  # with nothing in it, it is no run
    assert find_trained("mlpnet")[1].name == "mlpnet_mnist.safetensors"
    write_run(tmp_path / "mlpnet", mlpnet(), {}, config={"network": "mlpnet"}, record={})
    with pytest.raises(ChitaError, match=r"'mlpnet' is both a network .* \./mlpnet"):
        find_trained("mlpnet")
    for unmistakable in ("./mlpnet", str(tmp_path / "mlpnet")):
        assert find_trained(unmistakable)[1] == Path(unmistakable) / "model.safetensors"


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    save_checkpoint(mlpnet(), tmp_path / "m.safetensors")
    with pytest.raises(
        ChitaError, match=naming("m.safetensors", "config.yaml", "network=", "--network")
    ):
        find_trained(str(tmp_path / "m.safetensors"))
    (tmp_path / "config.yaml").write_text("- 1\n")
    with pytest.raises(ChitaError, match="--network"):
        find_trained(str(tmp_path / "m.safetensors"))
    for wrong in ("mlpnot", str(tmp_path)):
        with pytest.raises(ChitaError, match=f"'{wrong}' is neither .* mlpnet"):
            find_trained(wrong)
    (tmp_path / "stage.safetensors").touch()
    with pytest.raises(ChitaError, match=r"unfinished run, .* no model\.safetensors: .* --resume"):
        find_trained(str(tmp_path))
    with pytest.raises(ChitaError, match=naming("resnet20", "--checkpoint")):
        find_trained("resnet20")
    with pytest.raises(ChitaError, match=naming("mlpnet", "--network", "resnet20")):
        find_trained("mlpnet", "resnet20")
    assert find_trained("mlpnet", "mlpnet") == find_trained("mlpnet")
    for wrong in (5, None, mlpnet()):
        with pytest.raises(ChitaError, match=naming("network", str(wrong).split("(")[0])):
            zoo.open_trained(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(zoo.NETWORKS))
def test_images_have_the_size_that_the_network_takes(name: str) -> None:
    network = zoo.get(name)
    images = random_images(network, 2)
    assert torch.equal(images, random_images(network, 2))
    with torch.no_grad():
        assert network.build().eval()(images).shape == (2, network.classes)


def opened(checkpoint: Path | None, *, seed: int = 0, fresh: bool = False) -> Trained:
    return open_trained(
        zoo.get("mlpnet"),
        checkpoint,
        "mnist-slice",
        seed=seed,
        fresh=fresh,
    )


def test_the_weights_are_shipped_given_or_fresh(tmp_path: Path) -> None:
    halved = mlpnet()
    with torch.no_grad():
        halved.get_parameter("fc1.weight").mul_(0.5)
    save_checkpoint(halved, tmp_path / "half.safetensors")
    shipped = opened(None)
    assert same(snapshot(shipped.model), snapshot(mlpnet()))
    assert accuracy(shipped.model, shipped.test) > 96
    assert same(snapshot(opened(tmp_path / "half.safetensors").model), snapshot(halved))
    fresh = opened(None, fresh=True)
    assert accuracy(fresh.model, fresh.test) < 50


def test_the_seed_orders_calibration_alone() -> None:
    def first(trained: Trained) -> torch.Tensor:
        images, _ = next(iter(trained.calibration))
        assert images.shape[1:] == (1, 28, 28)
        return images

    one, again, other = opened(None, seed=1), opened(None, seed=1), opened(None, seed=2)
    assert torch.equal(first(one), first(again))
    assert not torch.equal(first(one), first(other))
    tests = [torch.cat([images for images, _ in trained.test]) for trained in (one, other)]
    assert torch.equal(*tests)


def test_weights_or_data_that_do_not_ship_are_asked_for() -> None:
    with pytest.raises(ChitaError, match=naming("resnet20", "checkpoint=", "--checkpoint")):
        open_trained(zoo.get("resnet20"))
    with pytest.raises(ChitaError, match=naming("data_name", "--data", "imagefolder:DIR", "none")):
        open_trained(zoo.get("resnet50"))
    with pytest.raises(
        ChitaError, match=naming("val_split", "--val-split", "imagefolder:DIR", 0.5)
    ):
        open_trained(zoo.get("mlpnet"), val_split=0.5)
    with pytest.raises(ChitaError, match=naming("mlpnet", "data_name", "--data", "cifar10")):
        open_trained("mlpnet", data_name="cifar10")


def test_the_checkpoint_is_a_path_or_its_text(run: Path) -> None:
    assert same(snapshot(open_trained("mlpnet", str(run)).model), doubled())
    with pytest.raises(ChitaError, match=naming("nofile")):
        open_trained("resnet20", checkpoint="nofile", with_data=False).build()
    with pytest.raises(ChitaError, match=naming("checkpoint", "str", "Path", 3)):
        open_trained("resnet20", checkpoint=3)  # type: ignore[arg-type]


def test_weights_in_the_cache_are_found(empty_cache: Path) -> None:
    with pytest.raises(ChitaError, match=naming("resnet50", "chita weights get resnet50")):
        open_trained("resnet50", with_data=False)
    with pytest.raises(ChitaError, match=naming("mobilenetv1", without="chita weights")):
        open_trained("mobilenetv1", with_data=False)
    folder = empty_cache / "weights" / "resnet50"
    folder.mkdir(parents=True)
    weights = zoo.ResNet50(KERAS).state_dict()
    save_checkpoint(weights, folder / "model.safetensors")
    trained = open_trained("resnet50", with_data=False)
    assert trained.checkpoint == find_trained("resnet50")[1] == folder / "model.safetensors"
    assert same(snapshot(trained.model), weights)


@pytest.mark.parametrize(("variant", "mean"), [(TORCHVISION, 0.485), (KERAS, 123.68 / 255)])
def test_the_checkpoint_decides_the_variant(variant: Variant, mean: float, tmp_path: Path) -> None:
    model = zoo.ResNet50(variant)
    save_checkpoint(model, tmp_path / "model.safetensors")
    trained = open_trained("resnet50", tmp_path / "model.safetensors", "imagefolder:x")
    assert trained.network.name == "resnet50"
    assert trained.network.preprocessing is not None
    assert trained.network.preprocessing.mean[0] == mean
    strides = [layer.stride for layer in trained.model.modules() if isinstance(layer, nn.Conv2d)]
    expected = [layer.stride for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert strides == expected


def test_a_network_opened_without_data_has_none() -> None:
    trained = open_trained(zoo.get("resnet50"), fresh=True, with_data=False)
    with pytest.raises(ChitaError, match="resnet50 was opened without its data"):
        trained.fetch()


def test_a_file_without_a_name_in_it() -> None:
    with pytest.raises(ChitaError, match=naming("models.py:NAME")):
        find_network("models.py")
