"""The folder a run leaves behind: the pruned model, its masks, the configuration and the result."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.files.whole import write_json, write_whole

MODEL_FILE = "model.safetensors"
MASKS_FILE = "masks.safetensors"
CONFIG_FILE = "config.yaml"
RESULT_FILE = "result.json"
STAGE_FILE = "stage.safetensors"  # the last finished part of a run, after which it can go on
EPOCH_FILE = "epoch.pt"


def prepare_folder(folder: Path) -> None:
    """Make sure that `folder` can be written to, before any work is done for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ChitaError(f"cannot write to the output folder {folder}: {error}") from error


def prepare_file(out: Path, suffix: str) -> None:
    """Make sure that `out` can be written and is named as its kind, before any work is done.

    A folder that a run fills is made where there is none; one that a file goes into must be there,
    for its name is rather a slip.
    """
    if out.suffix != suffix or out.is_dir():
        raise ChitaError(f"the file to write must end in {suffix}, got {out}")
    if not out.parent.is_dir():
        raise ChitaError(f"there is no folder {out.parent} to write {out.name} to: make it first")
    prepare_folder(out.parent)


def model_file(source: Path) -> Path:
    """The checkpoint that a path stands for: itself, or the model in the folder of a run."""
    if not source.is_dir():
        return source
    check_finished(source)
    return source / MODEL_FILE


def check_finished(folder: Path) -> None:
    """Say so if the run that `folder` is of was interrupted before it wrote its model."""
    for kept in (STAGE_FILE, EPOCH_FILE):
        if (folder / kept).exists() and not (folder / MODEL_FILE).exists():
            raise ChitaError(
                f"{folder} is of an unfinished run, with {kept} and no {MODEL_FILE}: go on with "
                "the command that began it and --resume"
            )


def write_run(
    folder: Path,
    model: nn.Module,
    masks: Mapping[str, Tensor],
    *,
    config: Mapping[str, Any],
    record: Mapping[str, Any],
) -> None:
    """Write model.safetensors, masks.safetensors, config.yaml and result.json.

    Args:
        folder: made by `prepare_folder`.
        model: pruned.
        masks: a bool tensor for each pruned parameter, True where a weight is kept.
        config: what was asked for.
        record: what came of it.
    """
    save_checkpoint(model, folder / MODEL_FILE)
    save_checkpoint(masks, folder / MASKS_FILE)
    write_whole(folder / CONFIG_FILE, yaml.safe_dump(dict(config), sort_keys=False).encode())
    write_json(folder / RESULT_FILE, record)
