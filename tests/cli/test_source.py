"""Networks as the command line names them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import chita
from chita import zoo
from chita.cli.source import open_source, random_images
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.files.run_folder import write_run
from tests.support.messages import naming, says
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
    known, model = open_source("mlpnet", None)
    assert known.name == "mlpnet" and same(snapshot(model), snapshot(mlpnet()))
    assert not model.training
    alone = tmp_path / "elsewhere"
    alone.mkdir()
    shutil.copy(run / "model.safetensors", alone / "m.safetensors")
    chita.save(open_source(str(run), None)[1], alone / "packed.safetensors")
    for source, network in (
        (run, None),
        (run / "model.safetensors", None),
        (alone / "m.safetensors", "mlpnet"),
        (alone / "packed.safetensors", "mlpnet"),
    ):
        known, model = open_source(str(source), network)
        assert known.name == "mlpnet" and same(snapshot(model), doubled())


def test_a_run_that_is_named_like_a_network_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlpnet").mkdir()  # with nothing in it, it is no run
    open_source("mlpnet", None)
    assert "mlpnet_mnist.safetensors" in capsys.readouterr().out
    write_run(tmp_path / "mlpnet", mlpnet(), {}, config={"network": "mlpnet"}, record={})
    with pytest.raises(ChitaError, match=naming("mlpnet", "mlpnet/model.safetensors", "./mlpnet")):
        open_source("mlpnet", None)
    for unmistakable in ("./mlpnet", str(tmp_path / "mlpnet")):
        open_source(unmistakable, None)
        said = capsys.readouterr().out.strip()
        assert says(said, "mlpnet", str(Path(unmistakable) / "model.safetensors"))


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    save_checkpoint(mlpnet(), tmp_path / "m.safetensors")
    with pytest.raises(ChitaError, match=naming("m.safetensors", "config.yaml", "--network")):
        open_source(str(tmp_path / "m.safetensors"), None)
    (tmp_path / "config.yaml").write_text("- 1\n")
    with pytest.raises(ChitaError, match=naming("m.safetensors", "--network")):
        open_source(str(tmp_path / "m.safetensors"), None)
    for wrong in ("mlpnot", str(tmp_path)):
        with pytest.raises(ChitaError, match=naming(wrong, "model.safetensors", "mlpnet")):
            open_source(wrong, None)
    (tmp_path / "stage.safetensors").touch()
    with pytest.raises(
        ChitaError, match=naming("stage.safetensors", "model.safetensors", "--resume")
    ):
        open_source(str(tmp_path), None)
    with pytest.raises(ChitaError, match=naming("resnet20", "--checkpoint")):
        open_source("resnet20", None)


@pytest.mark.parametrize("name", list(zoo.NETWORKS))
def test_images_have_the_size_that_the_network_takes(name: str) -> None:
    network = zoo.get(name)
    images = random_images(network, 2)
    assert torch.equal(images, random_images(network, 2))
    with torch.no_grad():
        assert network.build().eval()(images).shape == (2, network.classes)
