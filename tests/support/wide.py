"""Prunes a wide network in a process of its own, whose peak of memory the system has seen.

Takes a JSON object of a block size, the bytes it may take beyond what it has when it starts, and
whether to believe that the disk is slow. Writes one with its budget, its peak and what was logged.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import torch
from torch import nn

import chita
from chita.solver.matrix import plan
from chita.solver.matrix.memory import resident_bytes
from chita.solver.matrix.plan import Disk

STATUS = Path("/proc/self/status")
ROWS = 100  # A is 475 MB: 784 * 1000 + 1000 * 400 + 400 * 10 weights


class Told(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 400), nn.ReLU(), nn.Linear(400, 10)
    data = [(torch.randn(100, 784), torch.randint(10, (100,))) for _ in range(2)]
    told = Told()
    logging.getLogger("chita").addHandler(told)
    logging.getLogger("chita").setLevel(logging.INFO)
    given = json.loads(sys.argv[1])
    if given["slow_disk"]:
        plan.probe_disk = lambda: Disk(10**12, 1.0, 1.0)
    budget = resident_bytes(torch.device("cpu")) + given["room"]
    chita.prune(
        nn.Sequential(*layers),
        data,
        sparsity=0.9,
        method="chita-bso",
        samples=ROWS,
        batch=1,
        ridge=0.01,
        progress=False,
        block_size=given["block_size"],
        memory=budget,
    )
    record = {"budget": budget, "peak": peak(), "told": told.messages}
    sys.stdout.write(json.dumps(record) + "\n")


def peak() -> int:
    """The most bytes in memory since this program was started; what forked it may have had more."""
    rows = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(rows["VmHWM"].split()[0]) * 1024


if __name__ == "__main__":
    main()
