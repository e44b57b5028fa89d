"""Read regular files only: a pipe, or a link to one, might never end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, or a link to one, to read its bytes.

    Raises:
        OSError: the file cannot be opened, or is a pipe, a device or a folder.
    """
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a regular file")
    return path.open("rb")


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file; see `open_regular`.

    Args:
        path: the file.
        most: the most bytes that such a file has. A longer one is refused before it is read: a
            sparse file takes no space on a disk, but all of its size in memory.
    """
    with open_regular(path) as file:
        # A read with a limit would reserve the memory of the limit.
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(f"it has more than {most:,} bytes")
        return file.read()
