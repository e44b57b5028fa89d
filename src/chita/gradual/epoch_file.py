"""The last finished epoch of a training in a file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from chita.files.resumable import Kept, ResumableRun
from chita.files.run_folder import EPOCH_FILE
from chita.files.whole import write_whole
from chita.gradual.history import EpochRow


@dataclass(frozen=True)
class FinishedEpochs:
    """What the finished epochs hand on to the next one.

    Attributes:
        rows: one for each of them.
        model: its state dict.
        optimizer: its state dict.
        sparsifier: its state dict.
    """

    rows: list[EpochRow]
    model: dict[str, Any]
    optimizer: dict[str, Any]
    sparsifier: dict[str, Any]


class EpochFile(ResumableRun[FinishedEpochs]):
    """The file of one training.

    Args:
        folder: made if it is not there.
        run: all that decides the outcome, by name; any other run is refused.
        epochs: how many the training has.
    """

    file = EPOCH_FILE
    part = "epoch"

    def __init__(self, folder: Path, *, run: Mapping[str, Any], epochs: int) -> None:
        super().__init__(folder, run, epochs)

    @classmethod
    def read(cls, path: Path) -> Kept[FinishedEpochs]:
        content = torch.load(path, map_location="cpu", weights_only=True)
        finished = FinishedEpochs(
            rows=[EpochRow(**row) for row in content["rows"]],
            model=content["model"],
            optimizer=content["optimizer"],
            sparsifier=content["sparsifier"],
        )
        return Kept(content["run"], content["epochs"], finished)

    def write(self, finished: FinishedEpochs) -> None:
        content = {
            "run": self.run,
            "epochs": self.total,
            "rows": [asdict(row) for row in finished.rows],
            "model": finished.model,
            "optimizer": finished.optimizer,
            "sparsifier": finished.sparsifier,
        }
        written = io.BytesIO()
        torch.save(content, written)
        write_whole(self.path, written.getvalue())
