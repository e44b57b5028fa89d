"""Peak memory of a whole run of chita.prune, relative to the budget memory=.

The script prunes a network with random weights on random images, which are drawn again each time
they are read. The run is a process of its own, whose peak memory is that reported by the operating
system. With --compare the script repeats the run without a budget and compares the two pruned
networks.

    python benchmarks/memory.py resnet50 --samples 256 --memory 6GB --block-size 10000
    python benchmarks/memory.py mobilenetv1 --samples 1000 --memory 4GB
    python benchmarks/memory.py resnet50 --samples 64 --memory 6GB --compare
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def main() -> None:
    """Measure a run in a child process; with --weights, do the run itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--memory")
    parser.add_argument("--storage", default="float32")
    parser.add_argument("--method", default="chita-bso")
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--ridge", type=float, default=1e-2)
    parser.add_argument("--block-size", type=int)
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--compare", action="store_true", help="also run without a budget")
    parser.add_argument("--weights", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.weights is not None:
        prune(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = [item for item in sys.argv[1:] if item != "--compare"]
        weights = Path(folder) / "budgeted.pt"
        report(measure([*arguments, "--weights", str(weights)]))
        if given.compare:
            other = Path(folder) / "unlimited.pt"
            place = arguments.index("--memory")
            unlimited = arguments[:place] + arguments[place + 2 :]
            report(measure([*unlimited, "--weights", str(other)]))
            compare(weights, other)


def measure(arguments: list[str]) -> dict[str, Any]:
    """Return the figures that the run prints, its peak memory and its seconds."""
    began = perf_counter()
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = child.stdout.read().splitlines()
        _, status, usage = os.wait4(child.pid, 0)  # the usage of the child process only
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(child.returncode)
    record: dict[str, Any] = json.loads(lines[-1])
    return {**record, "peak": usage.ru_maxrss * 1024, "seconds": perf_counter() - began}


def report(record: dict[str, Any]) -> None:
    """Print one line for each figure."""
    print(f"{record['network']}, n = {record['samples']}, memory={record['memory']}")
    print(f"  A                  {record['matrix'] / 1e9:8.2f} GB")
    print(f"  peak from outside  {record['peak'] / 1e9:8.2f} GB")
    print(f"  gradients          {record['gradients']:8.1f} s")
    print(f"  solve              {record['solve']:8.1f} s")
    print(f"  whole process      {record['seconds']:8.1f} s")
    print(f"  objective          {record['objective']:12.6g}", flush=True)


def prune(given: argparse.Namespace) -> None:
    """Prune; print the figures to standard output and the plan to standard error."""
    import torch

    import chita
    from chita import zoo

    logging.basicConfig(level=logging.INFO, format="  %(message)s")
    network = zoo.get(given.network)
    torch.manual_seed(0)
    model = network.build()
    result = chita.prune(
        model,
        Images(given.samples * given.batch, given.size),
        sparsity=given.sparsity,
        method=given.method,
        samples=given.samples,
        batch=given.batch,
        ridge=given.ridge,
        block_size=given.block_size,
        include=network.prunable,
        memory=given.memory,
        storage=given.storage,
        progress=False,
    )
    kept = {name: parameter.detach() for name, parameter in model.named_parameters()}
    torch.save({name: kept[name] for name in result.masks}, given.weights)
    record = {
        "network": given.network,
        "samples": given.samples,
        "memory": given.memory,
        "matrix": 4 * given.samples * sum(row.weights for row in result.layers),
        "gradients": result.seconds.gradients,
        "solve": result.seconds.solve,
        "objective": result.stages[-1].objective,
    }
    sys.stdout.write(json.dumps(record) + "\n")


class Images:
    """Random images and labels, in batches of one; every pass yields the same ones."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        import torch

        generator = torch.Generator().manual_seed(0)
        for _ in range(self.count):
            image = torch.randn(1, 3, self.size, self.size, generator=generator)
            yield image, torch.randint(1000, (1,), generator=generator)


def compare(one: Path, other: Path) -> None:
    """Print how much the two pruned networks differ."""
    import torch

    first, second = (
        torch.cat([weight.flatten() for weight in torch.load(path, weights_only=True).values()])
        for path in (one, other)
    )
    both = (first != 0) & (second != 0)
    apart = int(((first != 0) != (second != 0)).sum())
    print(f"supports differ in {apart} of {int((first != 0).sum())} places")
    error = (first - second)[both].norm() / second[both].norm()
    print(f"on the common support the weights differ by {float(error):.2g} of their norm")


if __name__ == "__main__":
    main()
