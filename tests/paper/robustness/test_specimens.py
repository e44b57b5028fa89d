from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chita import zoo
from chita.files.checkpoint import save_checkpoint
from chita.model.accuracy import accuracy
from chita.model.losses import mean_loss
from chita.paper.networks import CHECKPOINTS, IMAGENET_CHECKPOINTS, find_subjects
from chita.paper.robustness import specimens as any_specimens
from chita.paper.robustness.specimens import SMALL, Small, find_specimens, trained_network
from chita.paper.robustness.tasks import Task, in_batches
from tests.data.pictures import save_classes
from tests.paper.small import embedded

BY_NAME = {small.name: small for small in SMALL}


def shortened(small: Small, samples: int) -> Small:
    """The same network with fewer samples to learn from, in one epoch."""

    def task() -> Task:
        whole = small.task()
        return Task((whole.train[0][:samples], whole.train[1][:samples]), whole.test)

    return replace(small, task=task, epochs=1)


def accuracy_of(small: Small, folder: Path) -> float:
    model = trained_network(small, folder)
    assert not model.training
    return accuracy(model, in_batches(small.task().test, 1000, torch.device("cpu")))


# Trained for a tenth of the time; chance is 10 percent for digits, 17 for signals.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "samples", "least"),
    [("vit", 2000, 30), ("depthwise", 4000, 40), ("tanh", 4000, 85), ("signals", 8000, 45)],
)
def test_the_small_networks_learn(name: str, samples: int, least: float, tmp_path: Path) -> None:
    assert accuracy_of(shortened(BY_NAME[name], samples), tmp_path) > least


def test_training_gives_the_same_bits_and_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = shortened(BY_NAME["transformer"], 640)
    first = trained_network(small, tmp_path / "one").state_dict()
    other = trained_network(small, tmp_path / "other").state_dict()
    monkeypatch.setattr(any_specimens, "train_small", None)  # not to be called again
    again = trained_network(small, tmp_path / "one").state_dict()
    for found in (other, again):
        assert all(torch.equal(tensor, found[name]) for name, tensor in first.items())


def test_the_embedded_network_and_its_copy_stand_for_the_zoo(tmp_path: Path) -> None:
    specimens = find_specimens(embedded(tmp_path).subjects)
    assert list(specimens) == [
        "mlpnet-embedded", "mlpnet-embedded-rescaled",
        "transformer", "vit", "depthwise", "tanh", "signals",
    ]  # fmt: skip
    whole, copy = specimens["mlpnet-embedded"], specimens["mlpnet-embedded-rescaled"]
    assert (whole.rescaled_from, copy.rescaled_from) == (None, whole.name)
    loss, same = (mean_loss(each.model(0), each.test()) for each in (whole, copy))
    assert loss == pytest.approx(same, rel=1e-4)
    ratio = copy.model(0).fc1.weight / whole.model(0).fc1.weight
    assert float(ratio.detach().median()) == pytest.approx(1000)


def test_with_all_checkpoints_there_are_ten_and_mobilenetv1(tmp_path: Path) -> None:
    for part in ("train", "val"):
        save_classes(tmp_path / "images" / part, classes=2, each=2)
    for name, file in {**CHECKPOINTS, **IMAGENET_CHECKPOINTS}.items():
        if name != "resnet50":
            save_checkpoint(zoo.get(name).build(), tmp_path / file)
    subjects = find_subjects(
        tmp_path, device=torch.device("cpu"), out=tmp_path, imagenet=tmp_path / "images"
    )
    specimens = find_specimens(subjects)
    assert "mobilenetv1" not in specimens  # that one has batch norm, and its own tables
    assert len(specimens) == 11
    originals = {s.name: s.rescaled_from for s in specimens.values() if s.rescaled_from}
    assert originals == {
        "mlpnet-rescaled": "mlpnet",
        "resnet20-folded-rescaled": "resnet20-folded",
    }
    mobile = specimens["mobilenetv1-folded"]
    inputs, labels = next(iter(mobile.calibration(0)))
    assert mobile.model(0)(inputs).shape == (len(labels), 1000)


def test_calibration_follows_the_seed(tmp_path: Path) -> None:
    signals = find_specimens(embedded(tmp_path).subjects)["signals"]
    first, again, other = (next(iter(signals.calibration(seed)))[1] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
