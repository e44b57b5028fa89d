"""Files that appear at once and whole, or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from chita.errors import ChitaError


def write_whole(path: Path, content: bytes) -> None:
    """Write the file beside its place and move it there; a failure leaves what was there before."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as scratch:
            written = Path(scratch) / path.name
            written.write_bytes(content)
            written.replace(path)
    except OSError as error:
        raise ChitaError(f"cannot write {path}: {error}") from error
