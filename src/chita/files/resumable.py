"""A run that keeps what it has finished in a file, after which it goes on if it was killed.

One file holds all that the next part needs of those before it. It is replaced at once and whole,
so that a kill at any moment leaves one finished part or the next, never a mixture.
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
    """What the finished parts hand on to the next one, and a row for each of them."""

    @property
    def rows(self) -> Sized: ...


Finished = TypeVar("Finished", bound=FinishedParts)


@dataclass(frozen=True)
class Kept(Generic[Finished]):
    """The content of a file.

    Attributes:
        run: all that decides the outcome, by name.
        total: how many parts the run has.
        finished: those that are done.
    """

    run: Mapping[str, Any]
    total: int
    finished: Finished


class KeptRun(ABC, Generic[Finished]):
    """The file of one run; what kind of file that is, the subclass knows.

    Args:
        folder: made if it is not there.
        run: all that decides the outcome, by name; any other run is refused.
        total: how many parts the run has.
    """

    file: ClassVar[str]  # its name in the folder
    part: ClassVar[str]  # what the run finishes one by one, such as "stage"

    def __init__(self, folder: Path, run: Mapping[str, Any], total: int) -> None:
        self.path = folder / self.file
        self.run: dict[str, Any] = json.loads(json.dumps(run))  # tuples as they will come back
        self.total = total

    @classmethod
    @abstractmethod
    def read(cls, path: Path) -> Kept[Finished]:
        """What the file holds; any exception stands for a damaged one."""

    @abstractmethod
    def write(self, finished: Finished) -> None:
        """Put these parts in the place of those before."""

    def begin(self, *, resume: bool) -> Finished | None:
        """The parts to go on after, if there are any and that is what `resume` asks for.

        Raises:
            ChitaError: the file is of another run, or damaged, or of a run that is not finished
                and would be lost without `resume`.
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
        logger.info("going on after %s %d of %d", self.part, done, self.total)
        return kept.finished

    @classmethod
    def done(cls, folder: Path) -> tuple[int, int] | None:
        """How many parts of how many the run in `folder` has finished; None if there is none."""
        kept = cls._find(folder)
        return None if kept is None else (len(kept.finished.rows), kept.total)

    @classmethod
    def forget_finished(cls, folder: Path) -> None:
        """Make room for a new run in `folder`; one that is not finished is not given up for it."""
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
        except Exception as error:  # an unpickler raises nearly anything on a damaged file
            raise ChitaError(
                f"cannot read {path} as a finished {cls.part}: it is damaged, or no file of "
                f"chita's ({type(error).__name__}); delete it to start anew"
            ) from error

    def _check_same(self, found: Mapping[str, Any]) -> None:
        differences = [
            f"{name} is {found.get(name)!r} there, {given!r} here"
            for name, given in self.run.items()
            if found.get(name) != given
        ]
        if differences:
            raise ChitaError(
                f"{self.path} is of another run: {'; '.join(differences)}; give what that run was "
                "given, or another folder"
            )
