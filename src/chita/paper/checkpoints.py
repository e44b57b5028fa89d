"""The checkpoints of an output folder: its runs must use the same ones.

The keys of cells contain the names of networks, but not their weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from chita.data.archives import sha256_of
from chita.errors import ChitaError
from chita.files.atomic import write_json
from chita.paper.networks import Subject

CHECKPOINTS_FILE = "checkpoints.json"


def require_same_checkpoints(subjects: Mapping[str, Subject], out: Path) -> None:
    """Store the sha256 of each checkpoint in OUT/networks, or compare it with the stored one.

    Args:
        subjects: the networks of a run.
        out: the folder of its cells.

    Raises:
        ChitaError: an earlier run used another checkpoint of one of these networks.
    """
    checkpoints = {
        name: subject.trained.checkpoint
        for name, subject in subjects.items()
        if subject.trained.checkpoint is not None
    }
    if not checkpoints:
        return
    folder = out / "networks"
    file = folder / CHECKPOINTS_FILE
    before = _read(file)
    found = {name: sha256_of(checkpoint) for name, checkpoint in checkpoints.items()}
    for name, digest in found.items():
        if before.get(name, digest) != digest:
            raise ChitaError(
                f"the results in {out} are those of another checkpoint of {name}, with sha256 "
                f"{before[name]}, and {checkpoints[name]} has sha256 {digest}: pass the other "
                "checkpoint (--checkpoints), or another output folder (--out)"
            )
    if not found.items() <= before.items():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(file, {**before, **found})


def _read(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    try:
        stored = json.loads(file.read_bytes())
    except ValueError as error:
        raise ChitaError(f"{file} is damaged ({error}); delete it") from error
    if not isinstance(stored, dict):
        raise ChitaError(f"{file} must contain a sha256 for each network; delete it")
    return stored
