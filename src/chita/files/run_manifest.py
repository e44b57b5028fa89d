"""The manifest of a run folder, run.json: the files that its run wrote, and whether it is finished.

Every file has a digest, and so has the manifest: no part of a folder is read back unchecked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chita.errors import ChitaError
from chita.files.atomic import write_whole
from chita.files.packed.container import parse

MANIFEST_FILE = "run.json"
FORMAT, VERSION = "chita.run", 1
_DIGEST_BYTES = 16
_AT_ONCE = 2**16  # bytes that are read at a time
_MOST_BYTES = 2**20  # of a manifest


@dataclass(frozen=True)
class Manifest:
    """The content of run.json.

    Attributes:
        finished: whether the run in the folder is finished. If not, `files` are those of the run
            before.
        files: the digest of each file, by name.
    """

    finished: bool
    files: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return the manifest of a folder; None if there is none, as in folders of older versions.

        Raises:
            ChitaError: it is damaged, or of another version.
        """
        path = folder / MANIFEST_FILE
        try:
            if not path.is_file() and not path.is_symlink():
                return None
            if not path.is_file() or path.stat().st_size > _MOST_BYTES:
                raise ChitaError("it is not a regular file, or too large")
            return _parse(path.read_bytes())
        except (ChitaError, OSError) as error:
            raise ChitaError(
                f"cannot read {path}: {error}; delete it to use the other files without this check"
            ) from error

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder, atomically."""
        content = {"format": FORMAT, "version": VERSION, "finished": self.finished}
        content["files"] = dict(sorted(self.files.items()))
        content["digest"] = _own_digest(self)
        write_whole(folder / MANIFEST_FILE, f"{json.dumps(content, indent=2)}\n".encode())

    def matches(self, path: Path) -> bool:
        """Return whether a file is the one that the manifest lists under its name."""
        return self.files.get(path.name, "") == file_digest(path)


def file_digest(path: Path) -> str | None:
    """Return the digest of a file, in hexadecimal; None if there is no regular file."""
    if not path.is_file():
        return None
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    try:
        with path.open("rb") as file:
            while part := file.read(_AT_ONCE):
                found.update(part)
    except FileNotFoundError:  # a run has removed it
        return None
    except OSError as error:
        raise ChitaError(f"cannot read {path}: {error}") from error
    return found.hexdigest()


def _parse(content: bytes) -> Manifest:
    match parse(content, "its content"):
        case {
            "format": "chita.run",
            "version": 1,
            "finished": bool(finished),
            "files": dict(files),
            "digest": str(digest),
            **rest,
        } if not rest and all(isinstance(value, str) for value in files.values()):
            manifest = Manifest(finished, files)
            if _own_digest(manifest) == digest:
                return manifest
            raise ChitaError("it is damaged: its content does not match its digest")
    raise ChitaError(f"it is not a manifest of format {FORMAT!r}, version {VERSION}")


def _own_digest(manifest: Manifest) -> str:
    fields = [FORMAT, VERSION, manifest.finished, sorted(manifest.files.items())]
    text = json.dumps(fields).encode()
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()
