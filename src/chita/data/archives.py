"""Downloaded archives: their digests are checked before they are read.

Members are read into memory and never extracted, so an archive cannot choose where files go.
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
    """Raise an error unless the file has the expected sha256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        raise ChitaError(
            f"{path.name} is truncated or modified: its sha256 is {digest.hexdigest()}, "
            f"expected {expected}"
        )


def read_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Return the contents of the named regular files of a compressed tar archive.

    This takes one pass, because seeking back in a compressed archive means reading it again.
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
        raise ChitaError(f"{path.name} is not a readable tar archive: {error}") from error
    if missing := sorted(set(names) - set(found)):
        raise ChitaError(f"{path.name} has no regular file {', '.join(missing)}")
    return found


def gunzip(path: Path) -> bytes:
    """Return the content of a gzip file."""
    try:
        return gzip.decompress(path.read_bytes())
    except _DAMAGE as error:
        raise ChitaError(f"{path.name} is not a readable gzip file: {error}") from error
