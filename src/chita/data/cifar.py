"""The binary format of CIFAR-10: records of 3073 bytes, a label and then the 3 x 32 x 32 image."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chita.data.dataset import check_labels
from chita.errors import ChitaError
from chita.files.regular import open_regular

CLASSES = 10
_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32
_MOST_RECORDS = 60_000  # all of CIFAR-10; an official file has 10,000


def read_cifar(path: Path) -> tuple[Tensor, Tensor]:
    """Return the images, (N, 3, 32, 32) uint8, and the labels, (N,) uint8, of one file."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size  # a sparse file may not fit into memory
            if size % _RECORD or not 0 < size // _RECORD <= _MOST_RECORDS:
                raise ChitaError(
                    f"{path} is truncated or not a CIFAR-10 file: its {size} bytes are not whole "
                    f"records of {_RECORD}, from 1 to {_MOST_RECORDS} of them"
                )
            content = file.read()
    except OSError as error:
        raise ChitaError(f"cannot read the CIFAR-10 file {path}: {error}") from error
    records = torch.from_numpy(np.frombuffer(content, np.uint8).reshape(-1, _RECORD).copy())
    labels = records[:, 0].clone()
    check_labels(labels, CLASSES, path)
    return records[:, 1:].reshape(-1, *_SHAPE), labels


def write_cifar(path: Path, images: Tensor, labels: Tensor) -> None:
    """Write images, (N, 3, 32, 32) uint8, and labels, (N,) below 10, as one file."""
    if images.dtype != torch.uint8 or images.shape != (len(labels), *_SHAPE):
        raise ChitaError(
            f"a CIFAR-10 file has uint8 images of shape ({len(labels)}, 3, 32, 32), one a label, "
            f"got {images.dtype} of shape {tuple(images.shape)}"
        )
    records = torch.cat([labels.to(torch.uint8)[:, None], images.reshape(len(images), -1)], dim=1)
    path.write_bytes(records.cpu().numpy().tobytes())
