"""The content of a file of weights, packed or plain: shapes, sparsity, patterns and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chita.files.checkpoint import read_checkpoint
from chita.files.packed.container import is_packed
from chita.files.packed.directory import Directory, Entry
from chita.files.packed.read import read_packed
from chita.files.packed.write import find_ties
from chita.solver.constraints.pattern import LARGEST_M

_FULL = 0.99  # least share of a pattern's places with non-zeros; a few may be zero by chance


def find_pattern(tensor: Tensor) -> str:
    """Return "dense" without zeros, "N:M" if M adjacent weights keep at most N, or "unstructured".

    Weights are adjacent along the input of a layer, as hardware reads them: over the second
    dimension of a matrix (or the first, if a layer stores it transposed), and over the kernel and
    then the input channels of a convolution, channels innermost. M is the smallest that fits.
    """
    kept = tensor != 0
    if bool(kept.all()):
        return "dense"
    for rows in _along_inputs(kept):
        for m in range(2, LARGEST_M + 1):
            if n := _kept_of_each(rows, m):
                return f"{n}:{m}"
    return "unstructured"


def _along_inputs(kept: Tensor) -> Iterator[Tensor]:
    """Yield views of shape (outputs, inputs)."""
    if kept.dim() == 2:
        yield kept
        if not _whole_outputs(kept):
            yield kept.T
    elif kept.dim() > 2:
        yield kept.movedim(1, -1).flatten(1)


def _whole_outputs(kept: Tensor) -> bool:
    """Return whether all zeros are in dead outputs, which look like 4:8 when transposed."""
    alive = int(kept.any(dim=1).sum())
    return int(torch.count_nonzero(kept)) >= _FULL * alive * kept.shape[1]


def _kept_of_each(rows: Tensor, m: int) -> int | None:
    """Return N if almost all groups of m in the rows have N non-zeros, and none more; else None."""
    if rows.shape[1] % m:
        return None
    nonzeros, groups = int(torch.count_nonzero(rows)), rows.numel() // m
    n = -(-nonzeros // groups)  # the least N that allows all non-zeros
    if n == 0 or n == m or nonzeros < _FULL * n * groups:
        return None
    most = rows.reshape(-1, m).sum(dim=1).max()
    return n if int(most) <= n else None


@dataclass(frozen=True)
class TensorRow:
    """One tensor of a file.

    `stored_bytes` of a packed tensor is the size of its codes and its share of the values of its
    type, which are compressed together; it is 0 for a tied tensor.
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
    """A file and its tensors; `dense_bytes` is the size of all tensors without a header."""

    packed: bool
    file_bytes: int
    dense_bytes: int
    tensors: list[TensorRow]

    @property
    def ratio(self) -> float:
        return self.file_bytes / self.dense_bytes if self.dense_bytes else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        rows = [{**asdict(row), "sparsity": row.sparsity} for row in self.tensors]
        return {**asdict(self), "ratio": self.ratio, "tensors": rows}


def describe(path: Path) -> FileReport:
    """Read a file and describe its tensors."""
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
    """Return the stored bytes of each tensor by name."""
    each = {
        dtype: sum(lengths) / max(directory.values_of(dtype), 1)
        for dtype, lengths in directory.planes.items()
    }

    def stored(entry: Entry) -> int:
        codes = sum(code.length for code in entry.codes)
        return codes + round(entry.values * each[entry.dtype])

    return {entry.name: stored(entry) for entry in directory.entries}
