"""Run folders: the pruned model, its masks, the configuration and the result of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.files.atomic import write_json, write_whole
from chita.files.checkpoint import save_checkpoint

MODEL_FILE = "model.safetensors"
MASKS_FILE = "masks.safetensors"
CONFIG_FILE = "config.yaml"
RESULT_FILE = "result.json"
STAGE_FILE = "stage.safetensors"  # the last finished part of a run, which can resume after it
EPOCH_FILE = "epoch.pt"


def prepare_folder(folder: Path) -> None:
    """Make `folder`, and check that it can be written to before any work starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ChitaError(f"cannot write to the output folder {folder}: {error}") from error


def prepare_file(out: Path, suffix: str) -> None:
    """Check the suffix of `out` and that it can be written, before any work starts.

    Unlike the folder of a run, the folder of a single file must exist, because a missing one is
    more likely a typing error.
    """
    if out.suffix != suffix or out.is_dir():
        raise ChitaError(f"the file to write must end in {suffix}, got {out}")
    if not out.parent.is_dir():
        raise ChitaError(f"there is no folder {out.parent} to write {out.name} to: create it first")
    prepare_folder(out.parent)


def model_file(source: Path) -> Path:
    """Return the checkpoint of a path: the path itself, or the model in a run folder."""
    if not source.is_dir():
        return source
    check_finished(source)
    return source / MODEL_FILE


def config_beside(checkpoint: Path) -> dict[str, Any]:
    """Return the configuration in the folder of a checkpoint; empty if none can be read."""
    try:
        config = yaml.safe_load((checkpoint.parent / CONFIG_FILE).read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return config if isinstance(config, dict) else {}


def check_finished(folder: Path) -> None:
    """Raise an error if the run in `folder` was interrupted before it wrote its model."""
    for kept in (STAGE_FILE, EPOCH_FILE):
        if (folder / kept).exists() and not (folder / MODEL_FILE).exists():
            raise ChitaError(
                f"{folder} is of an unfinished run, with {kept} and no {MODEL_FILE}: continue it "
                "with its command and --resume"
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
        folder: an existing folder (see `prepare_folder`).
        model: the pruned model.
        masks: a bool tensor for each pruned parameter, True where a weight is kept.
        config: the configuration of the run.
        record: its result.
    """
    save_checkpoint(model, folder / MODEL_FILE)
    save_checkpoint(masks, folder / MASKS_FILE)
    write_whole(folder / CONFIG_FILE, yaml.safe_dump(dict(config), sort_keys=False).encode())
    write_json(folder / RESULT_FILE, record)
