import logging
import os
import re
import sys
from pathlib import Path

import pytest
import torch

from chita import ChitaError
from chita.data import Batches, Preprocessing, Splits, image_folder
from chita.data.image_files import ImageFiles
from tests.data.pictures import save, save_classes
from tests.support.messages import naming, says

SMALL = Preprocessing(size=6, resize=8)


def parts(splits: Splits) -> tuple[ImageFiles, ImageFiles]:
    assert isinstance(splits.train, ImageFiles)
    assert isinstance(splits.test, ImageFiles)
    return splits.train, splits.test


def test_train_and_val(tmp_path: Path) -> None:
    save_classes(tmp_path / "train", classes=3, each=2)
    save(tmp_path / "val/c/x.PNG")
    save(tmp_path / "val/b/y.jpeg")
    train, test = parts(image_folder(tmp_path, SMALL))
    assert train.files == ["a/000.jpg", "a/001.jpg", "b/000.jpg", "b/001.jpg", "c/000.jpg",
                           "c/001.jpg"]  # fmt: skip
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert test.files == ["b/y.jpeg", "c/x.PNG"]
    assert test.labels.tolist() == [1, 2]  # a has no folder in val, and is still class 0
    assert [targets.tolist() for _, targets in Batches(test, 2)] == [[1, 2]]


def test_only_pictures_in_class_folders_count(tmp_path: Path) -> None:
    save_classes(tmp_path, classes=2, each=2)
    save(tmp_path / "a/.hidden.jpg")
    save(tmp_path / ".cache/x.jpg")
    save(tmp_path / "loose.jpg")
    (tmp_path / "a/notes.txt").write_text("no picture, and not called one")
    (tmp_path / "a/folder.jpg").mkdir()
    train, test = parts(image_folder(tmp_path, SMALL, val_split=0.5))
    assert sorted([*train.files, *test.files]) == ["a/000.jpg", "a/001.jpg", "b/000.jpg",
                                                   "b/001.jpg"]  # fmt: skip


def test_split_is_the_seeds(tmp_path: Path) -> None:
    save_classes(tmp_path, classes=4, each=5)
    train, test = parts(image_folder(tmp_path, SMALL, val_split=0.3, seed=1))
    assert (len(train), len(test)) == (14, 6)
    assert set(train.files) | set(test.files) == {
        f"{name}/{number:03}.jpg" for name in "abcd" for number in range(5)
    }
    for part in (train, test):
        assert part.files == sorted(part.files)
        assert part.labels.tolist() == ["abcd".index(name[0]) for name in part.files]
    assert parts(image_folder(tmp_path, SMALL, val_split=0.3, seed=1))[1].files == test.files
    assert parts(image_folder(tmp_path, SMALL, val_split=0.3, seed=2))[1].files != test.files


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, 0.01, 0.99, float("nan")])
def test_split_leaves_images_on_both_sides(share: float, tmp_path: Path) -> None:
    save_classes(tmp_path, classes=2, each=2)
    with pytest.raises(ChitaError, match=naming("val_split", share, 4)):
        image_folder(tmp_path, SMALL, val_split=share)


def test_split_and_val_exclude_each_other(tmp_path: Path) -> None:
    save_classes(tmp_path / "train", classes=1, each=2)
    save_classes(tmp_path / "val", classes=1, each=2)
    with pytest.raises(ChitaError, match=naming("val_split", 0.5, "train", "val")):
        image_folder(tmp_path, SMALL, val_split=0.5)


def test_one_of_them_is_needed(tmp_path: Path) -> None:
    save_classes(tmp_path / "train", classes=1, each=2)
    with pytest.raises(ChitaError, match=naming("train", "val", "val_split", "--val-split")):
        image_folder(tmp_path, SMALL)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "nowhere"))):
        image_folder(tmp_path / "nowhere", SMALL)
    with pytest.raises(ChitaError, match=naming("x.jpg", re.compile("folder|directory"))):
        image_folder(save(tmp_path / "x.jpg"), SMALL)


def test_no_class_folders(tmp_path: Path) -> None:
    save(tmp_path / "x.jpg")
    with pytest.raises(ChitaError, match=naming(str(tmp_path), re.compile("class"))):
        image_folder(tmp_path, SMALL, val_split=0.5)
    (tmp_path / "train").mkdir()
    save_classes(tmp_path / "val", classes=1, each=1)
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "train"), re.compile("class"))):
        image_folder(tmp_path, SMALL)


@pytest.mark.parametrize("part", ["train", "val"])
def test_empty_class_folder(part: str, tmp_path: Path) -> None:
    for name in ("train", "val"):
        save_classes(tmp_path / name, classes=2, each=1)
    (tmp_path / part / "b/000.jpg").rename(tmp_path / part / "b/000.txt")
    with pytest.raises(ChitaError, match=naming(f"{part}/b", ".jpg")):
        image_folder(tmp_path, SMALL)


def test_classes_that_train_lacks(tmp_path: Path) -> None:
    save_classes(tmp_path / "train", classes=2, each=1)
    save_classes(tmp_path / "val", classes=3, each=1)
    with pytest.raises(
        ChitaError, match=naming(str(tmp_path / "val"), str(tmp_path / "train"), "c")
    ):
        image_folder(tmp_path, SMALL)


def test_as_many_classes_as_the_network_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_classes(tmp_path, classes=3, each=1)
    with caplog.at_level(logging.WARNING):
        image_folder(tmp_path, SMALL, val_split=0.5, classes=3)
        assert not caplog.messages
        image_folder(tmp_path, SMALL, val_split=0.5, classes=4)
        assert says(caplog.text, str(tmp_path), 3, 4)
    with pytest.raises(ChitaError, match=naming(str(tmp_path), 3, 2)):
        image_folder(tmp_path, SMALL, val_split=0.5, classes=2)


def test_no_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ChitaError, match=naming("images", "pip install 'chita[images]'")):
        image_folder(tmp_path, SMALL, val_split=0.5)


def test_workers(tmp_path: Path) -> None:
    save_classes(tmp_path, classes=2, each=2)
    with pytest.raises(ChitaError, match=naming("workers", -1)):
        image_folder(tmp_path, SMALL, val_split=0.5, workers=-1)
    alone, many = (
        torch.cat([inputs for inputs, _ in Batches(splits.train, 1)])
        for splits in (
            image_folder(tmp_path, SMALL, val_split=0.5, workers=workers) for workers in (0, 2)
        )
    )
    assert torch.equal(alone, many)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_pipes_are_not_read(tmp_path: Path) -> None:
    save_classes(tmp_path, classes=2, each=2)
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "a/pipe.jpg")
    (tmp_path / "a/link.jpg").symlink_to("../pipe")
    (tmp_path / "a/linked-folder.jpg").symlink_to("../b")
    train, test = parts(image_folder(tmp_path, SMALL, val_split=0.5))
    names = ["a/000.jpg", "a/001.jpg", "b/000.jpg", "b/001.jpg"]
    assert sorted([*train.files, *test.files]) == names
