"""The folder a run leaves behind: the pruned model, its masks, the configuration and the result."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from chita.checkpoint import save_checkpoint
from chita.errors import ChitaError
from chita.files import write_whole
from chita.result import PruneResult

RUN = ("network", "data", "checkpoint", "reestimate_bn")  # of the record: what was pruned


def prepare_folder(folder: Path) -> None:
    """Make sure that `folder` can be written to, before any work is done for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ChitaError(f"cannot write to the output folder {folder}: {error}") from error


def write_run(folder: Path, result: PruneResult, record: Mapping[str, Any]) -> None:
    """Write model.safetensors, masks.safetensors, config.yaml and result.json.

    Args:
        folder: made by `prepare_folder`.
        result: of `chita.prune`.
        record: what goes into result.json.
    """
    save_checkpoint(result.model, folder / "model.safetensors")
    save_checkpoint(result.masks, folder / "masks.safetensors")
    config = {name: _plain(value) for name, value in asdict(result.config).items()}
    config |= {name: record[name] for name in RUN if name in record}
    write_whole(folder / "config.yaml", yaml.safe_dump(config, sort_keys=False).encode())
    write_whole(folder / "result.json", f"{json.dumps(record, indent=2)}\n".encode())


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
