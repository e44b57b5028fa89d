"""Cells: the units of work of a benchmark, each computed once and stored in OUT/cells.jsonl.

A line of the file is `{"key": {...}, ...figures}`. The key contains everything that determines the
figures, so that a resumed or extended run computes only the missing cells.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from chita.errors import ChitaError
from chita.files.atomic import regular_target
from chita.paper.settings import DEFAULTS
from chita.report.progress import step_bar

Record = dict[str, Any]  # the stored form of a cell: its key and its figures

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cell:
    """A unit of work.

    Attributes:
        key: everything that determines the figures, as JSON values.
        compute: returns the figures, as JSON values.
    """

    key: dict[str, Any]
    compute: Callable[[], dict[str, Any]]


CELLS_FILE = "cells.jsonl"
_START = b'{"key": '  # of each line


class Cells:
    """The cells computed so far.

    Args:
        folder: the folder of cells.jsonl; the file is created by the first cell.
    """

    def __init__(self, folder: Path) -> None:
        self._file = regular_target(folder / CELLS_FILE)
        self._records = {_identity(record["key"]): record for record in self._read()}

    def compute(self, cells: Sequence[Cell], description: str) -> None:
        """Compute the missing cells, and store each one as soon as it is computed.

        If a cell fails, for example because memory is short, log a warning and continue; the next
        run tries it again.

        Raises:
            ChitaError: no cell could be computed.
        """
        failure: Exception | None = None
        with step_bar(description) as progress:
            for done, cell in enumerate(cells):
                progress(done, len(cells))
                if _identity(cell.key) in self._records:
                    continue
                try:
                    self._keep({"key": cell.key, **cell.compute()})
                except (ChitaError, torch.cuda.OutOfMemoryError) as error:
                    logger.warning("%s: %s", cell.key, error)
                    failure = error
        if failure is not None and not self.records(cells):
            raise failure

    def records(self, cells: Sequence[Cell]) -> list[Record]:
        """Return the records of the computed cells, in the order of `cells`."""
        identities = (_identity(cell.key) for cell in cells)
        return [self._records[each] for each in identities if each in self._records]

    def _keep(self, record: Record) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self._records[_identity(record["key"])] = record
        logger.info("%s", record)

    def _read(self) -> list[Record]:
        if not self._file.exists():
            return []
        content = self._file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        records = [self._parse(line, n) for n, line in enumerate(whole.splitlines(), start=1)]
        if part := content[len(whole) :]:  # the previous run was killed while writing
            if not _START.startswith(part[: len(_START)]):
                raise ChitaError(f"the last line of {self._file} is not a valid cell; delete it")
            with self._file.open("r+b") as file:
                file.truncate(len(whole))
        return records

    def _parse(self, line: bytes, number: int) -> Record:
        try:
            record: Record = json.loads(line)
            record["key"].items()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ChitaError(
                f"line {number} of {self._file} is not a valid cell ({error}); delete that line"
            ) from error
        return record


def _identity(key: dict[str, Any]) -> str:
    """Return a text that is equal for equal keys; a missing field has its default value."""
    return json.dumps({**DEFAULTS, **key}, sort_keys=True)
