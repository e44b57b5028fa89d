"""Prunes a wide network in a process of its own, whose memory is then seen from outside.

Takes a JSON object of arguments of `chita.prune` and whether to believe that the disk is slow, and
writes one with the objective and what was logged.
"""

from __future__ import annotations

import json
import logging
import sys

import torch
from torch import nn

import chita
from chita.storage import plan
from chita.storage.disk import Disk

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
    if json.loads(sys.argv[2]):
        plan.probe_disk = lambda: Disk(10**12, 1.0, 1.0)
    result = chita.prune(
        nn.Sequential(*layers),
        data,
        sparsity=0.9,
        method="chita-bso",
        samples=ROWS,
        batch=1,
        ridge=0.01,
        progress=False,
        **json.loads(sys.argv[1]),
    )
    record = {"objective": result.stages[-1].objective, "told": told.messages}
    sys.stdout.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
