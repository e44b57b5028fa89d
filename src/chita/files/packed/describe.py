"""What is in a file of weights, packed or plain: shapes, sparsity, patterns and bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chita.files.checkpoint import read_checkpoint
from chita.files.packed.container import is_packed
from chita.files.packed.directory import Directory, Entry
from chita.files.packed.pattern import find_pattern
from chita.files.packed.read import read_packed
from chita.files.packed.ties import find_ties


@dataclass(frozen=True)
class TensorRow:
    """One tensor of a file.

    `stored_bytes` of a packed tensor are its codes and its share of the values of its type, which
    are compressed together; a tied tensor has none.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    entries: int
    nonzeros: int
    pattern: str
    form: str
    stored_bytes: int
    dense_bytes: int

    @property
    def sparsity(self) -> float:
        return 1 - self.nonzeros / self.entries if self.entries else 0.0


@dataclass(frozen=True)
class FileReport:
    """A file and its tensors; `dense_bytes` are those of all tensors, without any header."""

    packed: bool
    file_bytes: int
    dense_bytes: int
    tensors: list[TensorRow]

    @property
    def ratio(self) -> float:
        return self.file_bytes / self.dense_bytes if self.dense_bytes else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        rows = [{**asdict(row), "sparsity": row.sparsity} for row in self.tensors]
        return {**asdict(self), "ratio": self.ratio, "tensors": rows}


def describe(path: Path) -> FileReport:
    """Read a file and say what is in it."""
    packed = is_packed(path)
    if packed:
        directory, tensors = read_packed(path)
        stored = _packed_bytes(directory)
        forms = {entry.name: entry.form for entry in directory.entries}
        tied = directory.tied
    else:
        tensors = read_checkpoint(path)
        stored, forms, tied = {}, {}, find_ties(tensors)
    rows = [
        _row(name, tensor, f"tied to {tied[name]}", 0)
        if name in tied
        else _row(name, tensor, forms.get(name, "dense"), stored.get(name, tensor.nbytes))
        for name, tensor in tensors.items()
    ]
    dense_bytes = sum(row.dense_bytes for row in rows)
    return FileReport(packed, path.stat().st_size, dense_bytes, rows)


def _row(name: str, tensor: Tensor, form: str, stored_bytes: int) -> TensorRow:
    return TensorRow(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        entries=tensor.numel(),
        nonzeros=int(torch.count_nonzero(tensor)),
        pattern=find_pattern(tensor),
        form=form,
        stored_bytes=stored_bytes,
        dense_bytes=tensor.nbytes,
    )


def _packed_bytes(directory: Directory) -> dict[str, int]:
    """The bytes of each tensor by name."""
    each = {
        dtype: sum(lengths) / max(directory.values_of(dtype), 1)
        for dtype, lengths in directory.planes.items()
    }

    def stored(entry: Entry) -> int:
        codes = sum(code.length for code in entry.codes)
        return codes + round(entry.values * each[entry.dtype])

    return {entry.name: stored(entry) for entry in directory.entries}
