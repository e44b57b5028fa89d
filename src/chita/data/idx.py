"""The idx format of MNIST: a magic number, the sizes of the axes, then the bytes, row by row.

The magic number is four bytes: two zeros, the type of the elements (8 is unsigned byte, the only
one MNIST uses) and the number of axes. Every size is a big-endian 32-bit integer.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.files.regular import open_regular

_UNSIGNED_BYTE = 8
_MOST_AXES = 16
_LONGEST_HEADER = 4 + 4 * _MOST_AXES
_MOST_ITEMS = 1_000_000  # of a data set in memory; MNIST has 60,000 images


def decode_idx(content: bytes, name: str) -> Tensor:
    """Return the uint8 tensor in the bytes of an idx file; `name` is the file in error messages."""
    shape = _read_header(content, name)
    start = _check_length(shape, len(content), name)
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def _read_header(content: bytes, name: str) -> tuple[int, ...]:
    """Return the shape in the header of an idx file, of which `content` is the beginning."""
    if len(content) < 4 or content[:3] != bytes((0, 0, _UNSIGNED_BYTE)):
        raise ChitaError(
            f"{name} is not an idx file of unsigned bytes: it starts with "
            f"{content[:4].hex(' ') or 'nothing'}, not with 00 00 08"
        )
    axes = content[3]
    if axes > _MOST_AXES:
        raise ChitaError(f"{name} is damaged: its idx header has {axes} axes, at most {_MOST_AXES}")
    if axes == 0 or len(content) < 4 + 4 * axes:
        raise ChitaError(f"{name} is truncated: its idx header of {axes} axes is incomplete")
    return struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])


def _check_length(shape: tuple[int, ...], length: int, name: str) -> int:
    """Raise an error unless a file of this shape has `length` bytes; return where they start."""
    start = 4 + 4 * len(shape)
    if length != start + math.prod(shape):
        raise ChitaError(
            f"{name} is truncated or damaged: an idx file of shape {shape} has "
            f"{start + math.prod(shape)} bytes, this one {length}"
        )
    return start


def encode_idx(values: Tensor) -> bytes:
    """Return the bytes of the idx file of a uint8 tensor of any shape."""
    if values.dtype != torch.uint8 or values.ndim == 0:
        raise ChitaError(
            f"an idx file holds uint8 values with at least one axis, got {values.dtype} of shape "
            f"{tuple(values.shape)}"
        )
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, _UNSIGNED_BYTE, values.ndim, *values.shape)
    return header + values.cpu().numpy().tobytes()


def read_idx(path: Path, item: tuple[int, ...]) -> Tensor:
    """Return the items in the idx file at `path`, (N, *item) uint8.

    The header and the size of the file are checked before its content is read: a sparse file may
    claim more than the memory can hold.

    Args:
        path: the file.
        item: the shape of one item, such as (28, 28), or () for a label.
    """
    try:
        with open_regular(path) as file:
            shape = _read_header(file.read(_LONGEST_HEADER), str(path))
            if shape[1:] != item or shape[0] > _MOST_ITEMS:
                raise ChitaError(
                    f"{path} has the shape {shape}: expected items of shape {item}, at most "
                    f"{_MOST_ITEMS}"
                )
            _check_length(shape, os.fstat(file.fileno()).st_size, str(path))
            file.seek(0)
            content = file.read()
    except OSError as error:
        raise ChitaError(f"cannot read the idx file {path}: {error}") from error
    return decode_idx(content, str(path))
