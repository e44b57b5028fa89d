from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chita import ChitaError, data
from chita.data.idx import encode_idx
from chita.data.sources import MNIST, MNIST_FILES, SOURCES
from tests.support.command import invoke
from tests.support.messages import naming


def put_small_mnist(folder: Path, label: int = 7) -> None:
    """Write a MNIST of three training and two test images."""
    for name, shape in zip(MNIST_FILES, ((3, 28, 28), (3,), (2, 28, 28), (2,)), strict=True):
        value = label if len(shape) == 1 else 7
        (folder / name).write_bytes(encode_idx(torch.full(shape, value, dtype=torch.uint8)))


@pytest.fixture
def three_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put_small_mnist(tmp_path)
    monkeypatch.setenv("CHITA_DATA", str(tmp_path))
    return tmp_path


def test_a_small_mnist_is_refused(three_images: Path) -> None:
    with pytest.raises(ChitaError, match=naming(str(three_images), 3, 2, 60000, 10000)):
        data.load("mnist")
    with pytest.raises(ChitaError, match=naming(3, 60000)):
        invoke("data", "get", "mnist")


@pytest.mark.parametrize("label", [10, 255])
def test_wrong_labels_are_refused(
    three_images: Path, label: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "mnist", replace(MNIST, sizes=(3, 2)))
    put_small_mnist(three_images, label)
    with pytest.raises(ChitaError, match=naming("train-labels-idx1-ubyte", label, 10)):
        data.load("mnist")


def test_images_of_other_sizes_are_refused(three_images: Path) -> None:
    content = encode_idx(torch.zeros(3, 32, 32, dtype=torch.uint8))
    (three_images / MNIST_FILES[0]).write_bytes(content)
    with pytest.raises(ChitaError, match=naming(MNIST_FILES[0], "(3, 32, 32)", "(28, 28)")):
        data.load("mnist")


@pytest.mark.usefixtures("three_images")
def test_loads_the_files_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "mnist", replace(MNIST, sizes=(3, 2)))
    splits = data.load("mnist")
    inputs, targets = next(iter(data.Batches(splits.test, 2)))
    assert torch.allclose(inputs, torch.full((2, 1, 28, 28), (7 / 255 - 0.1307) / 0.3081))
    assert targets.tolist() == [7, 7]


def test_slice_needs_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert len(data.load("mnist-slice").train) == 17_000
    assert list(tmp_path.iterdir()) == []


def test_unknown_name() -> None:
    with pytest.raises(ChitaError, match=naming("imagenet", "mnist-slice", "mnist", "cifar10")):
        data.load("imagenet")
