"""List the files of chita that a call of `chita.prune(model, batches, sparsity=0.9)` uses.

    python tools/trace_files.py

A file counts if at least one of its functions is called between the start and the end of the call;
imports do not count.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import chita

PACKAGE = Path(chita.__file__).parent


def traced_files() -> set[Path]:
    """Return the files that a call with the default method runs through."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 8, generator=generator)
    batches = list(zip(inputs.chunk(8), inputs[:, :3].argmax(1).chunk(8), strict=True))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        chita.prune(model, batches, sparsity=0.9, progress=False)
    finally:
        sys.setprofile(None)
    return {path for path in map(Path, found) if PACKAGE in path.parents}


def main() -> None:
    """Print the files, one on a line, and their number."""
    files = sorted(str(path.relative_to(PACKAGE)) for path in traced_files())
    print("\n".join(files))
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()
