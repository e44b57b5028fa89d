"""Where the pieces of the calibration samples are stored, and the outputs of blocks for them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch

from chita.model.samples.batch import copied
from chita.solver.matrix.plan import temporary_folder


class StoredPieces(Protocol):
    """Nests of tensors by number."""

    def put(self, number: int, nest: Any) -> None:
        """Store a nest, instead of the one that has this number."""

    def get(self, number: int) -> Any:
        """Return the nest of this number; it must not be changed."""


class InMemory:
    """Pieces in memory, on the devices of their tensors."""

    def __init__(self) -> None:
        self._pieces: dict[int, Any] = {}

    def put(self, number: int, nest: Any) -> None:
        self._pieces[number] = nest

    def get(self, number: int) -> Any:
        return self._pieces[number]


class OnDisk:
    """Pieces in files of a temporary folder (in TMPDIR), which is deleted with this object."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="chita-", dir=temporary_folder())

    def put(self, number: int, nest: Any) -> None:
        torch.save(copied(nest), self._file(number))  # a view would be saved with all its memory

    def get(self, number: int) -> Any:
        # The file is our own. Outputs of blocks may contain objects that are not tensors.
        return torch.load(self._file(number), weights_only=False)

    def _file(self, number: int) -> Path:
        return Path(self._folder.name) / f"{number}.pt"
