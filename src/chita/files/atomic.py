"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chita.errors import ChitaError

UNFINISHED = ".unfinished-"  # begins the names of files that are being written


def as_path(path: str | Path, argument: str = "path") -> Path:
    """Return a user's path as a Path; raise an error that names the argument if it is none."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        raise ChitaError(
            f"{argument} must be a str or a Path, got {path!r:.80} of type {type(path).__name__}"
        )
    if not text or "\0" in text:
        raise ChitaError(f"{argument} must be the path of a file or folder, got {text!r:.80}")
    try:
        Path(text).is_dir()
    except OSError as error:  # such as a name that is too long
        raise ChitaError(f"{argument} cannot be used: {error}") from error
    return Path(text)


def regular_target(path: Path) -> Path:
    """Return the file that a write to `path` replaces: a link is followed.

    Raises:
        ChitaError: the path is a device, a pipe or a folder, which must not be replaced by a file;
            or the folder of the file does not exist.
    """
    try:
        target = Path(os.path.realpath(path))
        for folder in (path.parent, target.parent):
            if not folder.is_dir():
                raise ChitaError(
                    f"cannot write {path}: there is no folder {folder}; create it first, or give "
                    "the path of a file in a folder that exists"
                )
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    except ChitaError:
        raise
    except (OSError, ValueError) as error:
        raise ChitaError(f"cannot write {path}: {error}") from error
    if not stat.S_ISREG(mode):
        raise ChitaError(f"cannot write {path}: it is not a regular file; give another file")
    return target


def write_whole(path: Path, content: bytes) -> None:
    """Write a temporary file and move it to `path`; a failure leaves an existing file unchanged.

    The file that a link points to is replaced, and the link stays. What is not a regular file, such
    as a device or a pipe, is refused.
    """
    target = regular_target(path)
    prefix = f"{UNFINISHED}{target.name}-"
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as scratch:
            written = Path(scratch) / target.name
            written.write_bytes(content)
            written.replace(target)
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
    for scratch in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(scratch, ignore_errors=True)
