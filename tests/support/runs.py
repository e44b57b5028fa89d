"""The files of a small run."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from chita.files.run_folder import (
    STAGE_FILE,
    replacing,
    write_run,
    writing_to,
)


def finished_run(folder: Path) -> None:
    """A finished run, with the parts that it could be resumed from."""
    with writing_to(folder):
        (folder / STAGE_FILE).write_bytes(b"stages")
        with replacing(folder) as new:
            write_run(new, nn.Linear(3, 2), {}, config={"network": "mlpnet"}, record={"stages": []})
