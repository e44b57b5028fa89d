"""The disk that temporary files go to: what is free on it, and how fast it is."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from time import perf_counter

from chita.errors import ChitaError

logger = logging.getLogger(__name__)

PROBE = 32 << 20  # bytes written and read to time the disk


@dataclass(frozen=True)
class Disk:
    """The disk of TMPDIR.

    Attributes:
        free: bytes.
        write: bytes a second.
        read: bytes a second.
    """

    free: int
    write: float
    read: float


def temporary_folder() -> str:
    """Where temporary files go; a TMPDIR that cannot be used is told of, and not used."""
    try:
        folder = gettempdir()
    except FileNotFoundError as error:
        raise ChitaError(
            f"A does not fit into memory, and there is nowhere else: {error}"
        ) from error
    asked = os.environ.get("TMPDIR")
    if asked and not (Path(asked).exists() and Path(asked).samefile(folder)):
        logger.warning("TMPDIR=%s cannot be written to: temporary files go to %s", asked, folder)
    return folder


def probe_disk() -> Disk:
    """Write a small file through to the disk, and read it back from there if that can be had."""
    free = shutil.disk_usage(temporary_folder()).free
    if free < PROBE:
        return Disk(free, 1.0, 1.0)
    with TemporaryFile(buffering=0) as file:
        began = perf_counter()
        file.write(bytes(PROBE))
        os.fsync(file.fileno())
        written = perf_counter()
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        middle = perf_counter()
        file.readall()
        end = perf_counter()
    return Disk(free, PROBE / (written - began), PROBE / (end - middle))
