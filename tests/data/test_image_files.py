import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chita import ChitaError
from chita.data import Batches, Preprocessing, RandomResizedCrop
from chita.data.decode import decode
from chita.data.image_files import ImageFiles
from tests.data.pictures import noise, save, save_bomb, save_classes
from tests.support.messages import naming, says

SMALL = Preprocessing(size=6, resize=8, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))


def in_folder(folder: Path, *, workers: int = 0) -> ImageFiles:
    files = sorted(f"{path.parent.name}/{path.name}" for path in folder.glob("*/*.*"))
    labels = torch.tensor([ord(name[0]) - ord("a") for name in files])
    return ImageFiles(folder, files, labels, SMALL, workers)


@pytest.fixture
def pictures(tmp_path: Path) -> ImageFiles:
    save_classes(tmp_path, classes=3, each=4)
    return in_folder(tmp_path)


def images_and_labels(batches: Batches) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*batches, strict=True)
    return torch.cat(inputs), torch.cat(targets)


def same(one: Batches, other: Batches) -> bool:
    return all(map(torch.equal, images_and_labels(one), images_and_labels(other)))


def with_workers(pictures: ImageFiles, workers: int) -> ImageFiles:
    return ImageFiles(pictures.folder, pictures.files, pictures.labels, SMALL, workers)


def test_batches_are_cropped_normalised_and_in_order(pictures: ImageFiles) -> None:
    batches = Batches(pictures, 5)
    assert [len(targets) for _, targets in batches] == [5, 5, 2]
    inputs, targets = images_and_labels(batches)
    assert targets.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert inputs.dtype == torch.float32
    for name, image in zip(pictures.files, inputs, strict=True):
        pixels = SMALL.centre(decode(str(pictures.folder / name))).float() / 255
        expected = [(pixels[c] - SMALL.mean[c]) / SMALL.std[c] for c in range(3)]
        assert torch.allclose(image, torch.stack(expected), atol=1e-6)


def test_read_again_and_again(pictures: ImageFiles) -> None:
    batches = Batches(pictures, 5)
    next(iter(batches))  # one that is broken off changes nothing
    assert same(batches, batches)


def test_shuffled_orders_repeat_from_the_seed(pictures: ImageFiles) -> None:
    assert same(Batches(pictures.shuffled(3), 5), Batches(pictures.shuffled(3), 5))
    inputs, targets = images_and_labels(Batches(pictures.shuffled(3), 5))
    assert sorted(targets.tolist()) == pictures.labels.tolist() != targets.tolist()
    plain, _ = images_and_labels(Batches(pictures, 5))
    order = [pictures.files.index(name) for name in pictures.shuffled(3).files]
    assert torch.equal(inputs, plain[order])
    assert not same(Batches(pictures, 5, shuffle=True), Batches(pictures, 5, shuffle=True, seed=1))


@pytest.mark.parametrize("augment", [None, RandomResizedCrop(6)])
def test_workers_change_nothing(pictures: ImageFiles, augment: RandomResizedCrop | None) -> None:
    alone, many = (
        Batches(with_workers(pictures, workers), 4, shuffle=True, augment=augment, seed=2)
        for workers in (0, 2)
    )
    assert same(alone, many)
    assert same(alone, many)  # the second iteration has draws of its own


def test_augmentation_is_new_each_time_and_repeats_from_the_seed(pictures: ImageFiles) -> None:
    def two_iterations() -> list[Tensor]:
        batches = Batches(pictures, 12, augment=RandomResizedCrop(6), seed=1)
        return [inputs for _ in range(2) for inputs, _ in batches]

    first, second = two_iterations()
    assert not torch.equal(first, second)
    assert all(map(torch.equal, two_iterations(), (first, second)))


def test_augmentation_sees_the_whole_picture(tmp_path: Path) -> None:
    save(tmp_path / "a/x.png", size=(31, 17))
    seen = []

    def augment(images: Tensor, generator: torch.Generator) -> Tensor:
        seen.append(images)
        return images[:, :, :6, :6]

    list(Batches(in_folder(tmp_path), 1, augment=augment))
    assert torch.equal(seen[0][0], noise(17, 31).permute(2, 0, 1))


def test_the_global_generator_is_left_alone(pictures: ImageFiles) -> None:
    before = torch.get_rng_state()
    list(Batches(with_workers(pictures, 2), 4, shuffle=True, augment=RandomResizedCrop(6)))
    assert torch.equal(torch.get_rng_state(), before)


def damage(folder: Path, kind: str) -> Path:
    path = folder / "a/050.jpg"
    if kind == "truncated":
        content = save(path, size=(60, 50)).read_bytes()
        path.write_bytes(content[: len(content) // 2])
    elif kind == "bomb":
        save_bomb(path, side=30_000)
    elif kind == "dead link":
        path.unlink()
        path.symlink_to("nowhere.jpg")
    else:
        path.write_bytes({"empty": b"", "text": b"no picture"}[kind])
    return path


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    save_classes(tmp_path, classes=1, each=100)
    return tmp_path


@pytest.mark.parametrize("kind", ["truncated", "bomb", "dead link", "empty", "text"])
def test_one_in_a_hundred_may_be_unreadable(
    kind: str, hundred: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected, _ = images_and_labels(Batches(in_folder(hundred), 32))
    damage(hundred, kind)
    pictures = in_folder(hundred)
    assert len(pictures) == 100
    batches = Batches(pictures, 32)
    with caplog.at_level(logging.WARNING):
        assert [len(targets) for _, targets in batches] == [32, 31, 32, 4]
        inputs, _ = images_and_labels(batches)
    assert torch.equal(inputs, torch.cat((expected[:50], expected[51:])))
    (message,) = caplog.messages  # once, though read twice
    assert says(message, 1, 100, str(hundred), "a/050.jpg")


def test_more_than_one_in_a_hundred_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_classes(tmp_path, classes=1, each=99)
    (tmp_path / "a/007.jpg").write_bytes(b"")
    with pytest.raises(ChitaError, match=naming(1, 99, "1%", "a/007.jpg")):
        list(Batches(in_folder(tmp_path, workers=2), 16))
    assert not caplog.messages


def test_a_batch_of_unreadable_files_is_left_out(hundred: Path) -> None:
    damage(hundred, "text")
    assert [len(targets) for _, targets in Batches(in_folder(hundred), 1)] == [1] * 99


def test_a_reader_that_breaks_off_is_warned(
    hundred: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(hundred, "text")
    for _ in Batches(in_folder(hundred), 60):
        break
    assert "a/050.jpg" in caplog.text
