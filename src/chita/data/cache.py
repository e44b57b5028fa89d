"""The cache of downloaded files: a folder appears in it complete or not at all."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from chita.data.archives import Archive, check_sha256
from chita.data.download import Progress, download
from chita.errors import ChitaError
from chita.files.folder_lock import lock

logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the folder of everything that chita downloads."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "chita"


def make_in_cache(
    target: Path,
    routes: Sequence[Sequence[Archive]],
    *,
    what: str,
    check: Callable[[Path], object],
    hint: str,
    progress: Progress | None = None,
) -> Path:
    """Make a folder of the cache from the first route that works, and return it.

    The files are made in a temporary folder beside it, which is then renamed. An error or an
    interruption removes the temporary folder; what a killed process left is removed here.

    Args:
        target: the folder to make; an incomplete one is replaced.
        routes: the ways to get the files, best first.
        what: the name of the files in errors.
        check: raises a ChitaError if the files in a folder are not the expected ones.
        hint: says what the user can do if no route works.
        progress: see `chita.data.download.download`.
    """
    cache, failures = target.parent, []
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        for route in routes:
            with tempfile.TemporaryDirectory(prefix=_prefix(target), dir=cache) as name:
                scratch = Path(name)
                with lock(scratch):
                    try:
                        made = _make(route, scratch=scratch, check=check, progress=progress)
                    except ChitaError as error:
                        logger.info("%s: %s", what, error)
                        failures.append(str(error))
                        continue
                    if target.exists():  # an incomplete one: it goes with the temporary folder
                        target.rename(scratch / "old")
                    made.rename(target)
                    return target
    except OSError as error:
        raise ChitaError(f"cannot write {what} to {cache}: {error}") from error
    raise ChitaError(f"cannot fetch {what}: {'; '.join(failures)}. {hint}")


def _prefix(target: Path) -> str:
    return f".{target.name}-"


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary folders of killed processes, whose locks are free."""
    for scratch in target.parent.glob(f"{_prefix(target)}*"):
        try:
            with lock(scratch):
                shutil.rmtree(scratch, ignore_errors=True)
        except ChitaError:  # another process is making the same files
            continue


def _make(
    route: Sequence[Archive],
    *,
    scratch: Path,
    check: Callable[[Path], object],
    progress: Progress | None,
) -> Path:
    """Download, check, unpack and verify the files; return the finished folder in `scratch`."""
    made = scratch / "made"
    made.mkdir()
    for archive in route:
        logger.info("fetching %s", archive.location)
        downloaded = download(archive.location, scratch, progress)
        check_sha256(downloaded, archive.sha256)
        archive.unpack(downloaded, made)
    try:
        check(made)
    except ChitaError as error:
        raise ChitaError(f"{route[0].location} gave other data: {error}") from error
    return made
