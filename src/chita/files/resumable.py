"""Resumable runs: a file with the finished parts of a run, from which it can continue.

The file contains everything that the next part needs. It is replaced atomically: a run that is
killed at any moment leaves the file of one finished part or of the next.
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
from chita.files.atomic import sweep
from chita.files.run_folder import is_of_earlier_run, prepare_folder, start_run

logger = logging.getLogger(__name__)


class FinishedParts(Protocol):
    """The state of a run after its finished parts, with a row for each of them."""

    @property
    def rows(self) -> Sized: ...


Parts = TypeVar("Parts", bound=FinishedParts)


@dataclass(frozen=True)
class StoredRun(Generic[Parts]):
    """The content of a file.

    Attributes:
        run: everything that determines the outcome, by name.
        total: the number of parts of the run.
        finished: the state after the finished parts.
    """

    run: Mapping[str, Any]
    total: int
    finished: Parts


class ResumableRun(ABC, Generic[Parts]):
    """The file of one run; subclasses define its format.

    Args:
        folder: the folder; created if it does not exist.
        run: everything that determines the outcome, by name; any other run is refused.
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
    def read(cls, path: Path) -> StoredRun[Parts]:
        """Read a file; any exception means that it is damaged."""

    @abstractmethod
    def write(self, finished: Parts) -> None:
        """Replace the file by one with this state."""

    def begin(self, *, resume: bool) -> Parts | None:
        """Prepare the folder, and return the state to continue from; None to start anew.

        Args:
            resume: whether to continue from the file, if there is one.

        Raises:
            ChitaError: the file belongs to another run or is damaged; or, without `resume`, it
                belongs to an unfinished run, which would be lost.
        """
        folder = self.path.parent
        prepare_folder(folder)
        sweep(folder)
        stored = self._find(folder) if resume else None
        if stored is None:
            self.check_none_unfinished(folder)
            start_run(folder)
            self.path.unlink(missing_ok=True)
            return None
        self._check_same(stored.run)
        done = len(stored.finished.rows)
        if done < stored.total:
            start_run(folder)
        logger.info("continuing after %s %d of %d", self.part, done, self.total)
        return stored.finished

    @classmethod
    def done(cls, folder: Path) -> tuple[int, int] | None:
        """Return the finished parts and all parts of the run in a folder; None without a file."""
        stored = cls._find(folder)
        return None if stored is None else (len(stored.finished.rows), stored.total)

    @classmethod
    def check_none_unfinished(cls, folder: Path) -> None:
        """Raise an error if a folder contains an unfinished run, which would be lost."""
        done, total = cls.done(folder) or (0, 0)
        if done < total:
            raise ChitaError(
                f"{folder} contains a run that was interrupted after {cls.part} {done} of {total}: "
                f"resume it (--resume), give another folder, or delete {cls.file} there "
                "(--overwrite)"
            )

    @classmethod
    def _find(cls, folder: Path) -> StoredRun[Parts] | None:
        path = folder / cls.file
        if not path.exists() or is_of_earlier_run(path):
            return None
        try:
            if path.exists() and not path.is_file():  # reading from a pipe might never end
                raise ValueError("it is not a regular file")
            return cls.read(path)
        except FileNotFoundError:  # a run that starts anew has removed it
            return None
        except Exception as error:  # unpickling a damaged file may raise any exception
            raise ChitaError(
                f"cannot read {path} as a finished {cls.part}: it is damaged, or was not written "
                f"by chita ({type(error).__name__}); delete it (--overwrite) to start anew"
            ) from error

    def _check_same(self, found: Mapping[str, Any]) -> None:
        differences = [
            f"{name} is {found.get(name)!r} there, {given!r} here"
            for name, given in self.run.items()
            if found.get(name) != given
        ]
        if differences:
            raise ChitaError(
                f"{self.path} belongs to another run: {'; '.join(differences)}; give the options "
                "of that run, or another folder"
            )
