"""Time of whole runs on a GPU, with random images in GPU memory.

    python benchmarks/gpu.py [--repeat 3]

The networks have fresh weights; trained ones take the same time. The fastest run counts, because
the first run of a network also selects and loads convolution kernels.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import chita
from chita import zoo
from chita.pruning.result import PruneResult
from chita.zoo.training import initialise

IMAGES = 256  # the number of images in memory, which repeat


@dataclass(frozen=True)
class Case:
    """A run, and the limits in seconds of its solve and of the whole run."""

    network: str
    size: int
    classes: int
    arguments: dict[str, Any] = field(repr=False)
    solve: float | None
    total: float


CASES = [
    Case(
        "resnet50",
        224,
        1000,
        {"method": "chita-bso", "samples": 500, "batch": 16, "ridge": 1e-5, "block_size": 10_000},
        solve=1.0,
        total=10.0,
    ),
    Case(
        "mobilenetv1",
        224,
        1000,
        {"method": "chita-bso", "samples": 1000, "batch": 16, "ridge": 1e-3},
        solve=None,
        total=8.0,
    ),
    Case(
        "resnet20",
        32,
        10,
        {"method": "chita++", "samples": 1000, "batch": 1, "ridge": 1e-2, "stages": 15},
        solve=None,
        total=3.0,
    ),
]


class RandomImages:
    """Batches that repeat the same images, `count` images in total."""

    def __init__(self, case: Case, count: int) -> None:
        self.count = count
        draw = torch.Generator("cuda").manual_seed(0)
        shape = (IMAGES, 3, case.size, case.size)
        self.images = torch.randn(shape, device="cuda", generator=draw)
        self.labels = torch.randint(case.classes, (IMAGES,), device="cuda", generator=draw)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(0, self.count, IMAGES):
            yield self.images, self.labels


def prune(case: Case) -> tuple[PruneResult, float]:
    network = zoo.get(case.network)
    model = network.build().cuda()
    initialise(model, torch.Generator("cuda").manual_seed(0))
    count = case.arguments["samples"] * case.arguments["batch"]
    images = RandomImages(case, count)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    began = perf_counter()
    result = chita.prune(
        model,
        images,
        sparsity=0.9,
        first_order=False,
        include=network.prunable,
        progress=False,
        **case.arguments,
    )
    torch.cuda.synchronize()
    return result, perf_counter() - began


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    table = Table(
        "network", "gradients s", "solve s", "total s", "limit", "GB", title="90 % sparse"
    )
    for case in CASES:
        runs = [prune(case) for _ in range(repeat)]
        result, total = min(runs, key=lambda run: run[1])
        limit = f"{case.total:g}" + (f", solve {case.solve:g}" if case.solve else "")
        table.add_row(
            case.network,
            f"{result.seconds.gradients:.2f}",
            f"{result.seconds.solve:.2f}",
            f"{total:.2f}",
            limit,
            f"{result.peak_memory_bytes / 1e9:.1f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
