"""What the benchmarks are tried on: the embedded MLPNet."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from chita.paper.benchmark import Bench
from chita.paper.networks import find_subjects


def embedded(out: Path, seeds: int = 1) -> Bench:
    """The embedded network, for so many seeds."""
    return Bench(find_subjects(None, device=torch.device("cpu"), out=out), seeds)


def read_csv(file: Path) -> list[dict[str, str]]:
    """The rows of a table that was written."""
    with file.open() as lines:
        return list(csv.DictReader(lines))
