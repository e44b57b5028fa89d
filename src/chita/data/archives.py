"""Archives from elsewhere: nothing is believed before its digest is checked, or written by name.

Members are read into memory, never extracted, so no archive can choose where anything is written.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path

from chita.errors import ChitaError

_DAMAGE = (tarfile.TarError, zlib.error, EOFError, OSError)


def check_sha256(path: Path, expected: str) -> None:
    """Raise unless the file has the expected sha256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        raise ChitaError(
            f"{path.name} is truncated or was tampered with: its sha256 is {digest.hexdigest()}, "
            f"expected {expected}"
        )


def read_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """The contents of the named regular files of a compressed tar archive.

    One pass over the archive: going back in a compressed one means to start again.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name in names and member.isreg():
                    file = archive.extractfile(member)
                    assert file is not None  # a regular file always has contents
                    found[member.name] = file.read()
    except _DAMAGE as error:
        raise ChitaError(f"{path.name} is no readable tar archive: {error}") from error
    if missing := sorted(set(names) - set(found)):
        raise ChitaError(f"{path.name} has no regular file {', '.join(missing)}")
    return found


def gunzip(path: Path) -> bytes:
    """The content of a gzip file."""
    try:
        return gzip.decompress(path.read_bytes())
    except _DAMAGE as error:
        raise ChitaError(f"{path.name} is no readable gzip file: {error}") from error
