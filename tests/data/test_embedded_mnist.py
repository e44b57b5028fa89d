from pathlib import Path

import pytest
import torch

from chita.data import embedded_mnist as embed
from chita.data.fetch import locate
from chita.data.sources import MNIST


def test_slice_has_calibration_and_test_images_of_every_class() -> None:
    splits = embed.read_slice()
    assert (len(splits.train), len(splits.test)) == (17_000, 4_000)
    for data in (splits.train, splits.test):
        assert data.images.shape[1:] == (1, 28, 28)
        assert data.labels.bincount(minlength=10).min() > 0.08 * len(data)


def test_assets_are_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in embed.ASSETS.iterdir()) < 3_000_000


def test_slice_is_what_mnist_gives(tmp_path: Path) -> None:
    folder = locate(MNIST)
    if folder is None:
        pytest.skip("mnist is not on this machine")
    mnist, shipped = MNIST.read(folder), embed.read_slice()
    for full, part in ((mnist.train, shipped.train), (mnist.test, shipped.test)):
        chosen = [i * len(full) // len(part) for i in range(len(part))]
        assert torch.equal(part.images, full.images[chosen])
        assert torch.equal(part.labels, full.labels[chosen])


def test_write_then_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = embed.read_slice()
    monkeypatch.setattr(embed, "SLICE_SIZES", (100, 40))
    embed.write_slice(shipped, tmp_path)
    again = embed.read_slice(tmp_path)
    assert torch.equal(again.train.images, shipped.train.images[::170])
    assert torch.equal(again.test.labels, shipped.test.labels[::100])
