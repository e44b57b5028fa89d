"""Images in class folders, whose sorted names are the class indices.

Either `DIR/train` and `DIR/val` contain class folders, or `DIR` contains them and a share of the
images is used as the test set.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from chita.data.cpus import available_cpus
from chita.data.dataset import Splits
from chita.data.decode import SUFFIXES, require_pillow
from chita.data.image_files import ImageFiles, some
from chita.data.preprocessing import Preprocessing
from chita.errors import ChitaError

logger = logging.getLogger(__name__)

_MOST_WORKERS = 8


def image_folder(
    folder: str | Path,
    preprocessing: Preprocessing,
    *,
    val_split: float | None = None,
    seed: int = 0,
    classes: int | None = None,
    workers: int | None = None,
) -> Splits:
    """Return the images of `folder/train` and `folder/val`, or split those of one folder.

    Args:
        folder: the folder of the images.
        preprocessing: the preprocessing of the network.
        val_split: the share of the images of one folder that becomes the test set.
        seed: the seed of the choice of that share.
        classes: the classes of the network: more folders are an error, fewer a warning.
        workers: the number of processes that decode, 0 for none; by default one for each CPU
            that the process may use, at most 8.
    """
    require_pillow("folders of images")
    folder = Path(folder)
    if not folder.is_dir():
        raise ChitaError(f"image folder {folder} does not exist or is not a folder")
    if workers is None:
        workers = min(available_cpus(), _MOST_WORKERS)
    if workers < 0:
        raise ChitaError(f"workers must be at least 0, got {workers}")
    train, val = folder / "train", folder / "val"
    if train.is_dir() and val.is_dir():
        if val_split is not None:
            raise ChitaError(
                f"val_split is {val_split}, but {folder} has train and val: omit val_split, or "
                f"give {train} as the folder"
            )
        names = _class_names(train, classes)
        if unknown := sorted(set(_class_names(val)) - set(names)):
            raise ChitaError(
                f"{val} has classes that {train} lacks: {some(unknown)}; name the class folders of "
                "both alike"
            )
        return Splits(*(_scan(part, names, preprocessing, workers) for part in (train, val)))
    if val_split is None:
        raise ChitaError(
            f"{folder} does not have both train and val: add what is missing, or give val_split, "
            "the share of the images to test with, such as --val-split 0.1"
        )
    names = _class_names(folder, classes)
    return _split(_scan(folder, names, preprocessing, workers), val_split, seed)


def _class_names(folder: Path, classes: int | None = None) -> list[str]:
    """Return the class folders, which must not be more than `classes`."""
    names = sorted(entry.name for entry in _entries(folder) if Path(entry).is_dir())
    if not names:
        raise ChitaError(
            f"{folder} has no class folders: put the images of each class into a folder of its own"
        )
    counts = f"{folder} has {len(names)} class folders, but the network has {classes} classes"
    if classes is not None and len(names) > classes:
        raise ChitaError(f"{counts}: give a folder with at most as many")
    if classes is not None and len(names) < classes:
        logger.warning("%s: they are used as its first classes, in the order of the names", counts)
    return names


def _scan(folder: Path, names: list[str], preprocessing: Preprocessing, workers: int) -> ImageFiles:
    """Return the files in the class folders, by class and name; a class may have no folder."""
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        if not (folder / name).is_dir():
            continue
        found = sorted(
            f"{name}/{entry.name}" for entry in _entries(folder / name) if _is_image(entry)
        )
        if not found:
            raise ChitaError(
                f"class folder {folder / name} holds no images ({', '.join(SUFFIXES)}): put them "
                "directly into it, or remove it"
            )
        files += found
        labels += [label] * len(found)
    return ImageFiles(folder, files, torch.tensor(labels), preprocessing, workers)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise ChitaError(f"cannot list {folder}: {error}") from error


def _is_image(entry: os.DirEntry[str]) -> bool:
    # A broken link counts as an unreadable image, not as a missing one. A pipe, or a link to one,
    # is not an image: reading from it might never end.
    broken = entry.is_symlink() and not Path(entry).exists()
    return entry.name.lower().endswith(SUFFIXES) and (broken or entry.is_file())


def _split(whole: ImageFiles, val_split: float, seed: int) -> Splits:
    count = round(val_split * len(whole)) if 0 < val_split < 1 else 0
    if not 0 < count < len(whole):
        raise ChitaError(
            f"val_split must be a share above 0 and below 1 that leaves images on both sides, got "
            f"{val_split} of {len(whole)} images"
        )
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    return Splits(*(whole[chosen.sort().values] for chosen in (order[count:], order[:count])))
