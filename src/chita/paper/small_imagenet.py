"""A small ImageNet: a few images of each class, laid out as a folder that chita reads.

The images lie in two folders, `imagenet-sample/WNID/0.jpg`, one for each class in the order of the
WNIDs, and `imagenet-val2/CLASS/0.jpg` and `1.jpg`, two of the validation set that are cropped to
224 x 224 pixels. The first two of each class calibrate, and the third one tests.
"""

from __future__ import annotations

from pathlib import Path

SAMPLE, CROPPED = "imagenet-sample", "imagenet-val2"
SIZE = 224  # of the cropped images: they must not be enlarged before the crop of a network


def is_small_imagenet(folder: Path) -> bool:
    """Return whether a folder contains the folders of the small ImageNet."""
    return (folder / SAMPLE).is_dir() and (folder / CROPPED).is_dir()


def lay_out(folder: Path, to: Path) -> Path:
    """Link the images as `to`/train/CLASS/*.jpg and `to`/val/CLASS/*.jpg; return `to`."""
    names = sorted(path.name for path in (folder / SAMPLE).iterdir() if path.is_dir())
    for number, wnid in enumerate(names):
        label = f"{number:04d}"
        _link(folder / SAMPLE / wnid / "0.jpg", to / "train" / label / "sample.jpg")
        _link(folder / CROPPED / label / "0.jpg", to / "train" / label / "0.jpg")
        _link(folder / CROPPED / label / "1.jpg", to / "val" / label / "1.jpg")
    return to


def _link(image: Path, link: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)  # of an earlier run
    link.symlink_to(image.resolve())
