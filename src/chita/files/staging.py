"""Replace several files of a folder at once, by way of a staging folder.

The files are written to a staging folder, with a manifest, and the staging folder is then renamed.
Before that moment the folder has all old files. After it, all new ones are complete: if the process
is killed while it moves them to their places, the next command moves the rest.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chita.errors import ChitaError
from chita.files.atomic import UNFINISHED, write_whole
from chita.files.folder_lock import lock
from chita.files.run_manifest import MANIFEST_FILE, Manifest, file_digest

COMMITTED = ".committed"  # the staging folder once all its files are complete


@contextmanager
def replacing_at_once(
    folder: Path, names: Collection[str], parts: Iterable[Path] = (), *, finishes: bool
) -> Iterator[Path]:
    """Replace files of a locked folder: all of them or, after an error or a kill, none.

    Args:
        folder: the folder.
        names: the files that belong together. Old ones that are not written again are removed.
        parts: other files of the run, which are in their places.
        finishes: whether the run in the folder is finished with these files.

    Yields:
        An empty folder to write the new files to.
    """
    try:
        staging = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder))
    except OSError as error:
        raise ChitaError(f"cannot write to the output folder {folder}: {error}") from error
    try:
        yield staging
        before = Manifest.read(folder) or Manifest(True, {})
        files = {name: found for name, found in before.files.items() if name not in names}
        digests = ((path.name, file_digest(path)) for path in (*staging.iterdir(), *parts))
        files |= {name: found for name, found in digests if found is not None}
        Manifest(finishes or before.finished, files).write(staging)
        staging.rename(folder / COMMITTED)
    except OSError as error:
        raise ChitaError(f"cannot write to the output folder {folder}: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    complete(folder)


def complete(folder: Path) -> None:
    """Move the files of a complete staging folder to their places; without one, do nothing."""
    staging = folder / COMMITTED
    if not staging.is_dir():
        return
    try:
        with lock(folder):
            if staging.is_dir():  # another command may have moved them before it gave up the lock
                _move(staging, folder)
    except OSError as error:
        raise ChitaError(f"cannot complete the run in {folder}: {error}") from error


def _move(staging: Path, folder: Path) -> None:
    """Move all files, the manifest last, and remove those of the run before."""
    new, before = Manifest.read(staging), Manifest.read(folder) or Manifest(True, {})
    if new is not None:  # otherwise the manifest is in its place
        for path in staging.iterdir():
            if path.name != MANIFEST_FILE:
                _install(path, folder / path.name)
        for name in before.files.keys() - new.files.keys():
            if before.matches(folder / name):
                (folder / name).unlink()
        (staging / MANIFEST_FILE).replace(folder / MANIFEST_FILE)
    shutil.rmtree(staging)


def _install(path: Path, target: Path) -> None:
    if target.is_symlink():  # the link stays
        write_whole(target, path.read_bytes())
        path.unlink()
    else:
        path.replace(target)
