from pathlib import Path

import pytest
import torch

from chita import ChitaError
from chita.data.cifar import read_cifar, write_cifar
from tests.support.messages import naming


def test_round_trip_in_the_official_layout(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (5, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.tensor([9, 0, 3, 7, 1])
    path = tmp_path / "data_batch_1.bin"
    write_cifar(path, images, labels)

    record = path.read_bytes()[3073 : 2 * 3073]
    red, green, blue = (images[1, channel].numpy().tobytes() for channel in range(3))
    assert record == bytes([0]) + red + green + blue

    found_images, found_labels = read_cifar(path)
    assert torch.equal(found_images, images)
    assert found_labels.tolist() == labels.tolist()


@pytest.mark.parametrize("length", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_partial_records_are_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "test_batch.bin"
    path.write_bytes(bytes(length))
    with pytest.raises(ChitaError, match=naming("test_batch.bin", length, 3073)):
        read_cifar(path)


def test_impossible_labels_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "test_batch.bin"
    path.write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ChitaError, match=naming("test_batch.bin", "label 10")):
        read_cifar(path)
    with pytest.raises(ChitaError, match="nowhere"):
        read_cifar(tmp_path / "nowhere")


def test_writer_wants_one_label_an_image(tmp_path: Path) -> None:
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(ChitaError, match=naming("(3, 3, 32, 32)", "(2, 3, 32, 32)")):
        write_cifar(tmp_path / "x.bin", images, torch.zeros(3))
    assert not (tmp_path / "x.bin").exists()


def test_a_sparse_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "test_batch.bin"
    with path.open("wb") as file:
        file.truncate(20_000_000 * 3073)  # 61 GB, of which none is on the disk
    with pytest.raises(ChitaError, match=naming("test_batch.bin", 20_000_000 * 3073)):
        read_cifar(path)
