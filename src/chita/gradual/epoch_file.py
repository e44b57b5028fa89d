"""The last finished epoch in a file, after which a training that was killed goes on.

The file is replaced at once and whole: a kill at any moment leaves one epoch or the next.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from chita.errors import ChitaError
from chita.files import sweep, write_whole
from chita.gradual.history import EpochRow
from chita.output import prepare_folder

logger = logging.getLogger(__name__)

EPOCH_FILE = "epoch.pt"
_CONTENT = ("run", "epochs", "rows", "model", "optimizer", "sparsifier")


@dataclass(frozen=True)
class Finished:
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


class EpochFile:
    """The file of one training.

    Args:
        folder: made if it is not there.
        run: all that decides the outcome, by name; any other run is refused.
        epochs: how many the training has.
    """

    def __init__(self, folder: Path, *, run: Mapping[str, Any], epochs: int) -> None:
        self._path = folder / EPOCH_FILE
        self._run: dict[str, Any] = json.loads(json.dumps(run))  # tuples as they will come back
        self._epochs = epochs

    def begin(self, *, resume: bool) -> Finished | None:
        """The epochs to go on after, if there are any and that is what `resume` asks for.

        Raises:
            ChitaError: the file is of another run, or damaged, or of a run that is not finished
                and would be lost without `resume`.
        """
        prepare_folder(self._path.parent)
        sweep(self._path.parent)
        if not resume:
            forget_finished(self._path.parent)
        if not self._path.exists():
            return None
        content = _read(self._path)
        self._check_same(content["run"])
        rows = [EpochRow(**row) for row in content["rows"]]
        logger.info("going on after epoch %d of %d", len(rows), self._epochs)
        return Finished(rows, content["model"], content["optimizer"], content["sparsifier"])

    def write(self, finished: Finished) -> None:
        """Put these epochs in the place of those before."""
        content = {
            "run": self._run,
            "epochs": self._epochs,
            "rows": [asdict(row) for row in finished.rows],
            "model": finished.model,
            "optimizer": finished.optimizer,
            "sparsifier": finished.sparsifier,
        }
        written = io.BytesIO()
        torch.save(content, written)
        write_whole(self._path, written.getvalue())

    def _check_same(self, found: Mapping[str, Any]) -> None:
        differences = [
            f"{name} is {found.get(name)!r} there, {given!r} here"
            for name, given in self._run.items()
            if found.get(name) != given
        ]
        if differences:
            raise ChitaError(
                f"{self._path} is of another run: {'; '.join(differences)}; give what that run was "
                "given, or another folder"
            )


def epochs_done(folder: Path) -> tuple[int, int] | None:
    """How many epochs of how many the training in `folder` has finished; None if there is none."""
    path = folder / EPOCH_FILE
    if not path.exists():
        return None
    content = _read(path)
    return len(content["rows"]), content["epochs"]


def forget_finished(folder: Path) -> None:
    """Make room for a new training in `folder`; one that is not finished is not given up for it."""
    done, epochs = epochs_done(folder) or (0, 0)
    if done < epochs:
        raise ChitaError(
            f"{folder} holds a training that was interrupted after epoch {done} of {epochs}: "
            f"resume it, give another folder, or delete {EPOCH_FILE} there"
        )
    (folder / EPOCH_FILE).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        return {name: content[name] for name in _CONTENT}
    except Exception as error:  # the unpickler raises nearly anything on a damaged file
        raise ChitaError(
            f"cannot read {path} as a finished epoch: it is damaged, or no file of chita's; "
            "delete it to start anew"
        ) from error
