"""Read the files of `torch.save`, without running code and with memory limited by their size.

Such a file is a zip archive, which can stand for far more than its size: its members can be
compressed or overlap, and a tensor can have more entries than memory. `torch.save` writes the
former never, and the latter for expanded tensors.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.model.checks import check_whole

_SPARE = 2**20  # bytes of expanded tensors that any file may contain


def load_pickled(file: BinaryIO) -> Any:
    """Return the content of an open file; a damaged one may raise any exception.

    Raises:
        ChitaError: the file would take more memory than its size.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
        if sum(member.file_size for member in members) > size:
            raise ChitaError("its members take more memory than the file has bytes")
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


def check_dense(tensors: Mapping[str, Tensor], size: int) -> None:
    """Check that tensors are dense, and do not stand for far more than a file contains.

    Args:
        tensors: the tensors of the file, by name.
        size: the bytes of the file.

    Raises:
        ChitaError: a tensor is not dense, has no values, or is divided among ranks; or the expanded
            ones would take more memory than the file.
    """
    check_whole(tensors.items())
    expanded = 0
    for name, tensor in tensors.items():
        if (
            tensor.layout is not torch.strided
            or tensor.is_nested
            or tensor.is_quantized
            or tensor.is_meta
        ):
            raise ChitaError(f"{name!r} is not a dense tensor with values: convert it first")
        if tensor.nbytes > tensor.untyped_storage().nbytes():
            expanded += tensor.nbytes
    if expanded > size + _SPARE:
        raise ChitaError(
            f"its expanded tensors would take {expanded:,} bytes, more than the file: save the "
            ".clone() of each, or leave them out"
        )
