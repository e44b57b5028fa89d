"""The lock of a folder: one run at a time writes to it.

The system releases the lock when the process ends, also if it is killed, and no file is left.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chita.errors import ChitaError

try:
    import fcntl
except ImportError:  # pragma: no cover  # a system without advisory locks
    fcntl = None  # type: ignore[assignment]

Holder = tuple[int, int, int]  # device and inode of a folder, and a thread

_held: set[Holder] = set()  # a thread that holds a lock may take it again


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder; a command and the function it calls may both take it.

    Raises:
        ChitaError: another process or thread holds it.
    """
    status = folder.stat()
    holder = (status.st_dev, status.st_ino, threading.get_ident())
    if fcntl is None or holder in _held:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _take(descriptor, folder)
        _held.add(holder)
        yield
    finally:
        _held.discard(holder)
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ChitaError(
            f"another run of chita is writing to {folder}: wait for its end, or give another folder"
        ) from error
    except OSError:  # a file system without locks
        return
