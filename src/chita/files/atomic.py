"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chita.errors import ChitaError

_UNFINISHED = ".unfinished-"


def as_path(path: str | Path, argument: str = "path") -> Path:
    """Return a user's path as a Path; raise an error that names the argument for other types."""
    if not isinstance(path, (str, os.PathLike)):
        raise ChitaError(
            f"{argument} must be a str or a Path, got {path!r:.80} of type {type(path).__name__}"
        )
    return Path(path)


def write_whole(path: Path, content: bytes) -> None:
    """Write a temporary file and move it to `path`; a failure leaves an existing file unchanged."""
    prefix = f"{_UNFINISHED}{path.name}-"
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent) as scratch:
            written = Path(scratch) / path.name
            written.write_bytes(content)
            written.replace(path)
    except OSError as error:
        raise ChitaError(f"cannot write {path}: {error}") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented JSON atomically."""
    write_whole(path, f"{json.dumps(content, indent=2)}\n".encode())


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write comma-separated values atomically.

    Args:
        path: the file.
        rows: at least one row, all with the columns of the first; None is an empty field.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def sweep(folder: Path) -> None:
    """Remove the unfinished files of a process that was killed while it wrote into `folder`."""
    for scratch in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(scratch, ignore_errors=True)
