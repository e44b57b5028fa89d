from pathlib import Path

import pytest
import torch

from chita import zoo
from chita.cli.trained import Trained, open_trained
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.model.accuracy import accuracy
from tests.support.messages import naming
from tests.support.pruning import mlpnet, same, snapshot


def opened(checkpoint: Path | None, *, seed: int = 0, fresh: bool = False) -> Trained:
    return open_trained(
        zoo.get("mlpnet"),
        checkpoint,
        "mnist-slice",
        val_split=None,
        seed=seed,
        place=torch.device("cpu"),
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
    cpu = torch.device("cpu")
    with pytest.raises(ChitaError, match=naming("resnet20", "--checkpoint")):
        open_trained(zoo.get("resnet20"), None, None, val_split=None, seed=0, place=cpu)
    with pytest.raises(ChitaError, match=naming("resnet50", "--data", "imagefolder:DIR", "none")):
        open_trained(zoo.get("resnet50"), None, None, val_split=None, seed=0, place=cpu)
    with pytest.raises(ChitaError, match=naming("--val-split", "--data", "imagefolder:DIR", 0.5)):
        open_trained(zoo.get("mlpnet"), None, None, val_split=0.5, seed=0, place=cpu)
