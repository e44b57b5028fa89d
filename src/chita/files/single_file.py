"""Single files that a command writes, beside a run or into its folder: what they may replace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chita.errors import ChitaError
from chita.files.atomic import regular_target
from chita.files.folder_lock import lock
from chita.files.run_folder import check_finished, prepare_folder
from chita.files.run_manifest import MANIFEST_FILE, Manifest, file_digest


def prepare_file(out: Path, suffix: str) -> None:
    """Check the suffix of `out` and that it can be written, before any work starts.

    Unlike the folder of a run, the folder of a single file must exist, because a missing one is
    more likely a typing error.
    """
    if out.suffix != suffix or out.is_dir():
        raise ChitaError(f"the file to write must end in {suffix}, got {out}")
    if not out.parent.is_dir():
        raise ChitaError(f"there is no folder {out.parent} to write {out.name} to: create it first")
    regular_target(out)
    check_not_of_a_run(out)
    prepare_folder(out.parent)


def check_new(out: Path, *, overwrite: bool, source: Path | None = None) -> None:
    """Raise an error if a command would replace a file that exists.

    Args:
        out: the file to write.
        overwrite: whether to replace it.
        source: the file that the command converts without loss, which may be `out` itself.
    """
    if overwrite or not out.exists() or (source is not None and out.samefile(source)):
        return
    raise ChitaError(f"{out} exists and would be lost: give another file, or --overwrite")


def check_not_of_a_run(out: Path) -> None:
    """Raise an error if a file to write is one of a run, which it would damage."""
    target = regular_target(out)
    manifest = Manifest.read(target.parent)
    if target.name == MANIFEST_FILE or (manifest is not None and target.name in manifest.files):
        raise ChitaError(f"{out} is a file of the run in {target.parent}: give another file")


@contextmanager
def adding_file(path: Path) -> Iterator[None]:
    """Write a file of a finished run again, such as its page, and update its digest.

    In a folder without a run, this does nothing.

    Raises:
        ChitaError: another run is writing to the folder, or was interrupted there.
    """
    folder = path.parent
    if Manifest.read(folder) is None:
        yield
        return
    with lock(folder):
        check_finished(folder)
        yield
        manifest, digest = Manifest.read(folder), file_digest(path)
        if manifest is not None and digest is not None:
            Manifest(manifest.finished, {**manifest.files, path.name: digest}).write(folder)
