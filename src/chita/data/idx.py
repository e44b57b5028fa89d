"""The idx format of MNIST: a magic number, the sizes of the axes, then the bytes, row by row.

The magic number is four bytes: two zeros, the type of the elements (8 is unsigned byte, the only
one MNIST uses) and the number of axes. Every size is a big-endian 32-bit integer.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chita.errors import ChitaError

_UNSIGNED_BYTE = 8


def decode_idx(content: bytes, name: str) -> Tensor:
    """Return the uint8 tensor in the bytes of an idx file; `name` is the file in error messages."""
    if len(content) < 4 or content[:3] != bytes((0, 0, _UNSIGNED_BYTE)):
        raise ChitaError(
            f"{name} is not an idx file of unsigned bytes: it starts with "
            f"{content[:4].hex(' ') or 'nothing'}, not with 00 00 08"
        )
    axes = content[3]
    start = 4 + 4 * axes
    if axes == 0 or len(content) < start:
        raise ChitaError(f"{name} is truncated: its idx header of {axes} axes is incomplete")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) != start + math.prod(shape):
        raise ChitaError(
            f"{name} is truncated or damaged: an idx file of shape {shape} has "
            f"{start + math.prod(shape)} bytes, this one {len(content)}"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def encode_idx(values: Tensor) -> bytes:
    """Return the bytes of the idx file of a uint8 tensor of any shape."""
    if values.dtype != torch.uint8 or values.ndim == 0:
        raise ChitaError(
            f"an idx file holds uint8 values with at least one axis, got {values.dtype} of shape "
            f"{tuple(values.shape)}"
        )
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, _UNSIGNED_BYTE, values.ndim, *values.shape)
    return header + values.cpu().numpy().tobytes()


def read_idx(path: Path) -> Tensor:
    """Return the uint8 tensor in the idx file at `path`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ChitaError(f"cannot read the idx file {path}: {error}") from error
    return decode_idx(content, str(path))
