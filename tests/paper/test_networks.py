from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chita import data, zoo
from chita.data.preprocessing import pad_crop_flip
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.paper import networks
from chita.paper.networks import Subject, find_subjects
from chita.paper.settings import paper_grid
from chita.paper.table1 import IMAGENET_METHODS
from tests.data.pictures import save, save_classes
from tests.support.messages import naming


@pytest.fixture
def resnet20(tmp_path: Path) -> Subject:
    """An untrained ResNet20 on a few random images."""
    for name, file in networks.CHECKPOINTS.items():
        save_checkpoint(zoo.get(name).build(), tmp_path / file)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (64, 3, 32, 32), dtype=torch.uint8, generator=generator)
    some = data.ImageData(images, torch.arange(64) % 10, mean=(0.5,) * 3, std=(0.25,) * 3)
    subjects = find_subjects(tmp_path, device=torch.device("cpu"), out=tmp_path / "out")
    (tmp_path / "out").mkdir()
    subject = subjects["resnet20"]
    assert subject.trained.data_name == "cifar10"
    subject.trained._data["cifar10"] = data.Splits(some, some)  # in the place of the real images
    return subject


def test_batch_norm_is_estimated_once_for_each_seed(
    resnet20: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resnet20.model(0).state_dict()
    monkeypatch.setattr(networks, "reestimate_batch_norm", None)  # not to be called again
    again = resnet20.model(0).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    monkeypatch.undo()
    other = resnet20.model(1).state_dict()
    assert not torch.equal(first["bn1.running_mean"], other["bn1.running_mean"])
    assert torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_the_augmentation_is_that_of_training(resnet20: Subject) -> None:
    assert resnet20.network.recipe.augment is pad_crop_flip
    plain = replace(resnet20.network, recipe=replace(resnet20.network.recipe, augment=None))
    untouched = (
        replace(resnet20, trained=replace(resnet20.trained, network=plain)).model(0).state_dict()
    )
    assert torch.equal(untouched["bn1.running_mean"], torch.zeros(16))
    assert not torch.equal(resnet20.model(0).state_dict()["bn1.running_mean"], torch.zeros(16))


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlpnet_mnist.safetensors").write_bytes(b"")
    with pytest.raises(
        ChitaError,
        match=naming("--checkpoints", "resnet20_cifar10.safetensors", without="mlpnet_mnist"),
    ):
        find_subjects(tmp_path, device=torch.device("cpu"), out=tmp_path)


def test_calibration_follows_the_seed(tmp_path: Path) -> None:
    (subject,) = find_subjects(None, device=torch.device("cpu"), out=tmp_path).values()
    targets = [next(iter(subject.calibration(seed)))[1] for seed in (0, 0, 1)]
    assert torch.equal(targets[0], targets[1])
    assert not torch.equal(targets[0], targets[2])


def test_calibration_images_are_augmented_if_asked_for(resnet20: Subject) -> None:
    plain, other, augmented, again = (
        next(iter(resnet20.calibration(0, **arguments)))
        for arguments in ({}, {"augment": False}, {"augment": True}, {"augment": True})
    )
    assert torch.equal(plain[0], other[0])
    assert torch.equal(augmented[0], again[0])
    assert torch.equal(plain[1], augmented[1])  # the same images, moved and mirrored
    assert not torch.equal(plain[0], augmented[0])
    batches = resnet20.calibration(0, augment=True)
    assert not torch.equal(next(iter(batches))[0], next(iter(batches))[0])  # anew in each pass


def test_a_network_trained_without_augmentation_is_not_augmented(tmp_path: Path) -> None:
    (subject,) = find_subjects(None, device=torch.device("cpu"), out=tmp_path).values()
    assert not subject.augments
    with pytest.raises(ChitaError, match=naming("augment=True", "mlpnet-embedded")):
        subject.calibration(0, augment=True)


@pytest.mark.usefixtures("empty_cache")
def test_imagenet_adds_the_networks_whose_weights_are_there(tmp_path: Path) -> None:
    for part in ("train", "val"):
        save_classes(tmp_path / "images" / part, classes=2, each=2)
    with pytest.raises(
        ChitaError, match=naming("--imagenet", "--checkpoints", "MobileNetV1", "ResNet50")
    ):
        find_subjects(
            tmp_path, device=torch.device("cpu"), out=tmp_path, imagenet=tmp_path / "images"
        )
    save_checkpoint(zoo.get("mobilenetv1").build(), tmp_path / "mobilenetv1_imagenet.safetensors")
    subjects = find_subjects(
        tmp_path, device=torch.device("cpu"), out=tmp_path, imagenet=tmp_path / "images"
    )
    assert list(subjects) == ["mobilenetv1"]
    subject = subjects["mobilenetv1"]
    images, labels = next(iter(subject.calibration(0)))
    assert subject.model(0)(images).shape == (len(labels), 1000)
    assert not (tmp_path / "networks").exists()  # its batch norm is left as it was trained
    settings = [s for m in IMAGENET_METHODS["mobilenetv1"] for s in paper_grid("mobilenetv1", m)]
    assert {(s.samples, s.batch) for s in settings} == {(1000, 16)}
    assert {s.stages for s in settings if s.method == "chita++"} == {100}


@pytest.mark.usefixtures("empty_cache")
def test_the_small_imagenet_is_laid_out(tmp_path: Path) -> None:
    """The first two images of a class calibrate, in the order of the WNIDs; the third one tests."""
    for number, wnid in enumerate(("n02", "n10")):
        folder = tmp_path / "images" / "imagenet-val2" / f"{number:04d}"
        save(tmp_path / "images" / "imagenet-sample" / wnid / "0.jpg", size=(256, 256), seed=number)
        for place in (0, 1):
            save(folder / f"{place}.jpg", size=(224, 224), seed=10 + 2 * number + place)
    file = "mobilenetv1_imagenet_folded.safetensors"
    save_checkpoint(zoo.get("mobilenetv1-folded").build(), tmp_path / file)
    for _ in range(2):  # a resumed run finds the links of the first one
        (subject,) = find_subjects(
            tmp_path, device=torch.device("cpu"), out=tmp_path, imagenet=tmp_path / "images"
        ).values()
    assert (len(subject.splits.train), len(subject.splits.test)) == (4, 2)
    inputs, labels = next(iter(subject.test))
    assert labels.tolist() == [0, 1] and inputs.shape == (2, 3, 224, 224)
    assert next(iter(subject.calibration(0)))[1].sort().values.tolist() == [0, 0, 1, 1]
    preprocessing = subject.network.preprocessing
    assert preprocessing is not None and preprocessing.resize == preprocessing.size
