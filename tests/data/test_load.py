from pathlib import Path

import pytest
import torch

from chita import ChitaError, data
from chita.data.idx import encode_idx
from chita.data.sources import MNIST_FILES
from tests.support.messages import naming


def test_loads_the_files_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, shape in zip(MNIST_FILES, ((3, 28, 28), (3,), (2, 28, 28), (2,)), strict=True):
        (tmp_path / name).write_bytes(encode_idx(torch.full(shape, 7, dtype=torch.uint8)))
    monkeypatch.setenv("CHITA_DATA", str(tmp_path))
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
