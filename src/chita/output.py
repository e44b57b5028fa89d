"""The folder a run leaves behind: the pruned model, its masks, the configuration and the result."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor, nn

from chita.checkpoint import save_checkpoint
from chita.errors import ChitaError
from chita.files import write_json, write_whole

MODEL_FILE = "model.safetensors"
MASKS_FILE = "masks.safetensors"
CONFIG_FILE = "config.yaml"
RESULT_FILE = "result.json"


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
        raise ChitaError(f"OUT must be a file that ends in {suffix}, got {out}")
    if not out.parent.is_dir():
        raise ChitaError(f"there is no folder {out.parent} for OUT, {out}: make it first")
    prepare_folder(out.parent)


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
