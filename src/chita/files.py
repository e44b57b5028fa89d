"""Files that appear at once and whole, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from chita.errors import ChitaError

_UNFINISHED = ".unfinished-"


def write_whole(path: Path, content: bytes) -> None:
    """Write the file beside its place and move it there; a failure leaves what was there before."""
    prefix = f"{_UNFINISHED}{path.name}-"
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent) as scratch:
            written = Path(scratch) / path.name
            written.write_bytes(content)
            written.replace(path)
    except OSError as error:
        raise ChitaError(f"cannot write {path}: {error}") from error


def sweep(folder: Path) -> None:
    """Remove the unfinished files of a process that was killed while it wrote into `folder`."""
    for scratch in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(scratch, ignore_errors=True)
