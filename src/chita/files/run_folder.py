"""Run folders: the one owner of the files that a run writes, which every command uses.

One run at a time writes to a folder (`folder_lock.py`), and replaces all files at its end at once
(`staging.py`). The manifest (`run_manifest.py`) lists them with their digests. It also records that
a run has begun and is not finished, for every command that would otherwise read the files of the
run before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.files.atomic import regular_target, sweep, write_json, write_whole
from chita.files.checkpoint import save_checkpoint
from chita.files.folder_lock import lock
from chita.files.huggingface_names import HUGGINGFACE_FILES
from chita.files.run_manifest import MANIFEST_FILE, Manifest
from chita.files.staging import COMMITTED, complete, replacing_at_once
from chita.files.yaml_file import read_yaml

MODEL_FILE = "model.safetensors"
MASKS_FILE = "masks.safetensors"
CONFIG_FILE = "config.yaml"
RESULT_FILE = "result.json"
STAGE_FILE = "stage.safetensors"  # the last finished part of a run, which can resume after it
EPOCH_FILE = "epoch.pt"
PAGE_FILE = "report.html"

RESULT_FILES = (MODEL_FILE, MASKS_FILE, CONFIG_FILE, RESULT_FILE)  # of every run
PART_FILES = (STAGE_FILE, EPOCH_FILE)
HISTORY_FILES = ("history.csv", "history.png")
DEMO_FILES = ("accuracy.png", "demo.json")
RUN_FILES = (
    *RESULT_FILES,
    *PART_FILES,
    *HISTORY_FILES,
    *DEMO_FILES,
    PAGE_FILE,
    *HUGGINGFACE_FILES,  # beside the model of a Hugging Face folder
)


def prepare_folder(folder: Path) -> None:
    """Make `folder`, and check that it can be written to before any work starts."""
    found = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if found.exists() and not found.is_dir():
        raise ChitaError(
            f"the output (--out) needs a folder, which may be a new one, got {folder}, but {found} "
            "is a file: give another name"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ChitaError(f"cannot write to the output folder {folder}: {error}") from error


@contextmanager
def writing_to(folder: Path | None) -> Iterator[None]:
    """Make and lock a folder for a run; None for a run that writes nothing.

    Files that a killed run left half written are removed, and complete ones moved to their places.
    After an error or an interruption, folders that were made here are removed if they are empty.

    Raises:
        ChitaError: the folder cannot be written to, or another run is writing to it.
    """
    if folder is None:
        yield
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    prepare_folder(folder)
    with lock(folder), _removing_after_error(missing):
        complete(folder)
        sweep(folder)
        yield


@contextmanager
def _removing_after_error(folders: Iterable[Path]) -> Iterator[None]:
    """Remove the empty ones of some folders, the innermost first, after any exception."""
    try:
        yield
    except BaseException:
        for folder in folders:
            with suppress(OSError):  # it has files
                folder.rmdir()
        raise


def check_replaceable(
    folder: Path, names: Iterable[str], *, inputs: Iterable[Path | str | None], overwrite: bool
) -> None:
    """Check that a run may replace files of a folder, before any work starts.

    Args:
        folder: the folder, which is locked.
        names: the files that the run writes.
        inputs: the files and folders that it reads; none of them may be a file of the folder's run,
            or contain the folder.
        overwrite: whether to replace files that no run of chita wrote.

    Raises:
        ChitaError: a file would be lost.
    """
    for given in inputs:
        _check_input(folder, given)
    manifest = Manifest.read(folder) or Manifest(True, {})
    for path in (folder / name for name in names):
        if not path.exists() and not path.is_symlink():
            continue
        regular_target(path)
        if not overwrite and not manifest.matches(path):
            raise ChitaError(
                f"{path} was not written by a run of chita in this folder, or was changed since, "
                "and would be lost: give another folder, or --overwrite"
            )


def _check_input(folder: Path, given: Path | str | None) -> None:
    if given is None:
        return
    source = Path(given)
    if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
        where = "is" if folder.samefile(source) else "is inside"
        raise ChitaError(
            f"--out {folder} {where} {given}, which the run reads: give another folder"
        )
    source = source / MODEL_FILE if source.is_dir() else source
    for path in (folder / name for name in (*RUN_FILES, MANIFEST_FILE)):
        if path.exists() and source.exists() and path.samefile(source):
            raise ChitaError(
                f"--out {folder} would overwrite {given}, which the run reads: give another folder"
            )


def start_run(folder: Path) -> None:
    """Record that a run begins in a folder: the files of an earlier run do not belong to it."""
    manifest = Manifest.read(folder)
    others = [name for name in RUN_FILES if name not in PART_FILES]
    if manifest is None and not any((folder / name).exists() for name in others):
        return  # there are no files of an earlier run
    Manifest(False, manifest.files if manifest else {}).write(folder)


def is_of_earlier_run(path: Path) -> bool:
    """Return whether a file is of the run before the unfinished one in its folder."""
    manifest = Manifest.read(path.parent)
    return manifest is not None and not manifest.finished and manifest.matches(path)


def discard_parts(folder: Path, kept: str | None = None) -> None:
    """Delete the finished parts of a run that is given up, except the file `kept`."""
    found = [folder / name for name in PART_FILES if name != kept and (folder / name).exists()]
    if found:
        start_run(folder)
    for path in found:
        path.unlink()


def check_other_parts(folder: Path, kept: str | None) -> None:
    """Raise an error if a folder has the finished parts of an unfinished run of another command."""
    manifest = Manifest.read(folder)
    for path in (folder / name for name in PART_FILES if name != kept):
        if path.exists() and not (manifest is not None and manifest.matches(path)):
            raise ChitaError(
                f"{folder} contains {path.name}, the finished parts of a run of another command: "
                "give another folder, or --overwrite to delete them"
            )


@contextmanager
def replacing(folder: Path, names: Collection[str] = RUN_FILES) -> Iterator[Path]:
    """Replace files of a locked folder at once; yields an empty folder to write them to.

    Args:
        folder: the folder of the run.
        names: the files that belong together; by default those of a run, which is then finished.
    """
    parts: list[Path] = []
    if names is RUN_FILES:
        parts = [folder / name for name in PART_FILES if not is_of_earlier_run(folder / name)]
    with replacing_at_once(folder, names, parts, finishes=names is RUN_FILES) as staging:
        yield staging


def check_finished(folder: Path) -> None:
    """Raise an error if the run in `folder` was interrupted before it wrote its files."""
    complete(folder)
    manifest = Manifest.read(folder)
    if manifest is not None and not manifest.finished:
        raise ChitaError(
            f"{folder} is of an unfinished run, and {MODEL_FILE} of the run before: continue it "
            "with its command and --resume, or start it again"
        )
    for kept in PART_FILES if manifest is None else ():
        if (folder / kept).exists() and not (folder / MODEL_FILE).exists():
            raise ChitaError(
                f"{folder} is of an unfinished run, with {kept} and no {MODEL_FILE}: continue it "
                "with its command and --resume"
            )


def verified(path: Path) -> Path:
    """Return the path of a file to read, after checking it if it belongs to a run.

    Raises:
        ChitaError: the run is unfinished, or the file is not the one that it wrote.
    """
    folder = path.parent
    while True:
        complete(folder)
        manifest = Manifest.read(folder)
        if manifest is None or path.name not in (*RUN_FILES, *manifest.files):
            return path
        check_finished(folder)
        if manifest.matches(path) or not (path.exists() or path.name in manifest.files):
            return path
        complete(folder)
        if Manifest.read(folder) == manifest:
            raise ChitaError(
                f"{path} is damaged or missing, or was not written by the run in this folder: "
                f"restore it, or delete {MANIFEST_FILE} there to use the files without this check"
            )  # otherwise a run has replaced it in the meantime


@contextmanager
def reading_one_run(folder: Path) -> Iterator[None]:
    """Raise an error if a run replaces files of `folder` while several of them are read."""
    before = Manifest.read(folder)
    yield
    if Manifest.read(folder) != before or (folder / COMMITTED).exists():
        raise ChitaError(f"a run has begun or ended in {folder} while it was read: read it again")


def model_file(source: Path) -> Path:
    """Return the checkpoint of a path: the path itself, or the model in a run folder."""
    if not source.is_dir():
        return verified(source)
    check_finished(source)
    return verified(source / MODEL_FILE)


def config_beside(checkpoint: Path) -> dict[str, Any]:
    """Return the configuration in the folder of a checkpoint; empty if none can be read."""
    path = verified(checkpoint.parent / CONFIG_FILE)
    try:
        config = read_yaml(path)
    except ChitaError:
        return {}
    return config if isinstance(config, dict) else {}


def write_run(
    folder: Path,
    model: nn.Module,
    masks: Mapping[str, Tensor],
    *,
    config: Mapping[str, Any],
    record: Mapping[str, Any],
    save: Callable[[nn.Module, Path], None] | None = None,
) -> None:
    """Write model.safetensors, masks.safetensors, config.yaml and result.json.

    Args:
        folder: an existing folder, that of `replacing`.
        model: the pruned model.
        masks: a bool tensor for each pruned parameter, True where a weight is kept.
        config: the configuration of the run.
        record: its result.
        save: writes the model into the folder in another format, which includes
            model.safetensors; None for a plain checkpoint.
    """
    if save is None:
        save_checkpoint(model, folder / MODEL_FILE)
    else:
        save(model, folder)
    save_checkpoint(masks, folder / MASKS_FILE)
    write_whole(folder / CONFIG_FILE, yaml.safe_dump(dict(config), sort_keys=False).encode())
    write_json(folder / RESULT_FILE, record)
