"""The file that stores the last finished epoch of a training."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chita.files.atomic import write_whole
from chita.files.pickled import load_pickled
from chita.files.regular import open_regular
from chita.files.resumable import ResumableRun, StoredRun
from chita.files.run_folder import EPOCH_FILE
from chita.gradual.history import EpochRow
from chita.model.samples.fingerprint import fingerprint


@dataclass(frozen=True)
class FinishedEpochs:
    """The state after the finished epochs.

    Attributes:
        rows: one row per finished epoch.
        model: the state dict of the model.
        optimizer: the state dict of the optimizer.
        sparsifier: the state dict of the sparsifier.
    """

    rows: list[EpochRow]
    model: dict[str, Any]
    optimizer: dict[str, Any]
    sparsifier: dict[str, Any]


class EpochFile(ResumableRun[FinishedEpochs]):
    """The file of one training.

    Args:
        folder: the folder of the file; it is created if it does not exist.
        run: everything that determines the outcome, by name; a file of another run is refused.
        epochs: the number of epochs of the training.
    """

    file = EPOCH_FILE
    part = "epoch"

    def __init__(self, folder: Path, *, run: Mapping[str, Any], epochs: int) -> None:
        super().__init__(folder, run, epochs)

    @classmethod
    def read(cls, path: Path) -> StoredRun[FinishedEpochs]:
        with open_regular(path) as file:
            stored = load_pickled(file)
        content = _checked(stored["content"], stored["digest"])
        finished = FinishedEpochs(
            rows=[EpochRow(**row) for row in content["rows"]],
            model=content["model"],
            optimizer=content["optimizer"],
            sparsifier=content["sparsifier"],
        )
        return StoredRun(content["run"], content["epochs"], finished)

    def write(self, finished: FinishedEpochs) -> None:
        content = {
            "run": self.run,
            "epochs": self.total,
            "rows": [asdict(row) for row in finished.rows],
            "model": finished.model,
            "optimizer": finished.optimizer,
            "sparsifier": finished.sparsifier,
        }
        stored = torch.frombuffer(_saved(content), dtype=torch.uint8)
        write_whole(self.path, bytes(_saved({"digest": _digest(stored), "content": stored})))


def _saved(content: Mapping[str, Any]) -> bytearray:
    written = io.BytesIO()
    torch.save(content, written)
    return bytearray(written.getbuffer())


def _digest(stored: Tensor) -> str:
    return fingerprint([("content", stored)])


def _checked(stored: Tensor, digest: str) -> Any:
    """Return the content of the stored bytes, after checking their digest."""
    if _digest(stored) != digest:
        raise ValueError("the content is not the one that was written")
    return load_pickled(io.BytesIO(stored.numpy().tobytes()))
