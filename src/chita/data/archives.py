"""Downloaded archives: their digests are checked before they are read.

Members are read into memory and never extracted, so an archive cannot choose where files go.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from chita.errors import ChitaError

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError)


@dataclass(frozen=True)
class Archive:
    """One file to download.

    Args:
        location: see `chita.data.download.download`.
        sha256: the digest of the file.
        unpack: writes the files to keep, given the downloaded file and the folder for them.
    """

    location: str
    sha256: str
    unpack: Callable[[Path, Path], None]


def check_sha256(path: Path, expected: str) -> None:
    """Raise an error unless the file has the expected sha256."""
    found = sha256_of(path)
    if found != expected:
        raise ChitaError(
            f"{path.name} is truncated or modified: its sha256 is {found}, expected {expected}"
        )


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Return the contents of the named regular files of a zip or a compressed tar archive."""
    kind, read = ("zip", _read_zip) if zipfile.is_zipfile(path) else ("tar", _read_tar)
    try:
        found = read(path, names)
    except _DAMAGE as error:
        raise ChitaError(f"{path.name} is not a readable {kind} archive: {error}") from error
    if missing := sorted(set(names) - set(found)):
        raise ChitaError(f"{path.name} has no regular file {', '.join(missing)}")
    return found


def _read_zip(path: Path, names: Collection[str]) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name in names}


def _read_tar(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Read a tar archive in one pass: seeking back means decompressing it again."""
    found: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name in names and member.isreg():
                file = archive.extractfile(member)
                assert file is not None  # a regular file always has contents
                found[member.name] = file.read()
    return found


def gunzip(path: Path) -> bytes:
    """Return the content of a gzip file."""
    try:
        return gzip.decompress(path.read_bytes())
    except _DAMAGE as error:
        raise ChitaError(f"{path.name} is not a readable gzip file: {error}") from error
