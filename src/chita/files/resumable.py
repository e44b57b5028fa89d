"""Resumable runs: a run stores its finished parts in a file, and continues after them if killed.

One file holds everything that the next part needs from those before it. It is replaced atomically,
so a kill at any moment leaves a consistent state.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from chita.errors import ChitaError
from chita.files.run_folder import prepare_folder
from chita.files.whole import sweep

logger = logging.getLogger(__name__)


class FinishedParts(Protocol):
    """The state after the finished parts, with a row for each of them."""

    @property
    def rows(self) -> Sized: ...


Finished = TypeVar("Finished", bound=FinishedParts)


@dataclass(frozen=True)
class Kept(Generic[Finished]):
    """The content of a file.

    Attributes:
        run: the settings that determine the outcome, by name.
        total: the number of parts of the run.
        finished: the finished parts.
    """

    run: Mapping[str, Any]
    total: int
    finished: Finished


class KeptRun(ABC, Generic[Finished]):
    """The file of one run; a subclass defines its format.

    Args:
        folder: the folder of the run; it is made if it does not exist.
        run: the settings that determine the outcome, by name; a different run raises an error.
        total: the number of parts of the run.
    """

    file: ClassVar[str]  # the name of the file in the folder
    part: ClassVar[str]  # the name of a part, such as "stage"

    def __init__(self, folder: Path, run: Mapping[str, Any], total: int) -> None:
        self.path = folder / self.file
        self.run: dict[str, Any] = json.loads(json.dumps(run))  # tuples become lists, as when read
        self.total = total

    @classmethod
    @abstractmethod
    def read(cls, path: Path) -> Kept[Finished]:
        """Return the content of the file; any exception means that it is damaged."""

    @abstractmethod
    def write(self, finished: Finished) -> None:
        """Replace the stored parts by these."""

    def begin(self, *, resume: bool) -> Finished | None:
        """Return the finished parts to continue after; None without them or without `resume`.

        Raises:
            ChitaError: the file is damaged or belongs to another run, or an unfinished run would
                be lost without `resume`.
        """
        folder = self.path.parent
        prepare_folder(folder)
        sweep(folder)
        if not resume:
            self.forget_finished(folder)
        kept = self._find(folder)
        if kept is None:
            return None
        self._check_same(kept.run)
        done = len(kept.finished.rows)
        logger.info("continuing after %s %d of %d", self.part, done, self.total)
        return kept.finished

    @classmethod
    def done(cls, folder: Path) -> tuple[int, int] | None:
        """Return the finished and total parts of the run in `folder`; None without a run."""
        kept = cls._find(folder)
        return None if kept is None else (len(kept.finished.rows), kept.total)

    @classmethod
    def forget_finished(cls, folder: Path) -> None:
        """Delete a finished run in `folder`; raise an error if the run is unfinished."""
        done, total = cls.done(folder) or (0, 0)
        if done < total:
            raise ChitaError(
                f"{folder} holds a run that was interrupted after {cls.part} {done} of {total}: "
                f"resume it, give another folder, or delete {cls.file} there"
            )
        (folder / cls.file).unlink(missing_ok=True)

    @classmethod
    def _find(cls, folder: Path) -> Kept[Finished] | None:
        path = folder / cls.file
        if not path.exists():
            return None
        try:
            return cls.read(path)
        except Exception as error:  # an unpickler raises many types of errors on a damaged file
            raise ChitaError(
                f"cannot read {path} as a finished {cls.part}: it is damaged, or not a file of "
                f"chita ({type(error).__name__}); delete it to start again"
            ) from error

    def _check_same(self, found: Mapping[str, Any]) -> None:
        differences = [
            f"{name} is {found.get(name)!r} there, {given!r} here"
            for name, given in self.run.items()
            if found.get(name) != given
        ]
        if differences:
            raise ChitaError(
                f"{self.path} is of another run: {'; '.join(differences)}; give the same settings "
                "or another folder"
            )
