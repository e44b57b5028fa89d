"""ResNet20 on 1, 2 and 4 gloo ranks: check equal weights and memory proportional to 1/N.

    python benchmarks/ranks.py --checkpoint resnet20_cifar10.safetensors

CIFAR-10 comes from the cache (`chita data get cifar10`). For each method the table compares N ranks
with one: the number of weights in only one of the supports, the largest difference on the common
support, the objectives, and the growth of a rank's resident memory while it computes A (A, the
exchanged data, activations), relative to A / N.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import chita
from chita import data, zoo
from chita.curvature import fisher
from chita.curvature.fisher import gradient_matrix
from chita.files.checkpoint import load_checkpoint
from chita.model.weights import Weights

METHODS = {"chita-bso": 1e-5, "chita-cd": 1e-3}


def resident() -> int:
    """Return the peak resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured_gradients(*args: Any, **keywords: Any) -> Any:
    """Call gradient_matrix and store by how much it raised the peak memory."""
    before = resident()
    found = gradient_matrix(*args, **keywords)
    measured_gradients.grown = resident() - before  # type: ignore[attr-defined]
    return found


def work(rank: int, size: int, folder: str, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(max(1, 2 // size))
    dist.init_process_group("gloo", f"file://{folder}/{size}", rank=rank, world_size=size)
    fisher.gradient_matrix = measured_gradients
    network = zoo.get("resnet20")
    splits = data.load("cifar10")
    for method, ridge in METHODS.items():
        model = network.build()
        load_checkpoint(model, arguments.checkpoint)
        batches = data.Batches(splits.train.shuffled(0), 128)
        began = time.perf_counter()
        result = chita.prune(
            model,
            batches,
            sparsity=0.9,
            method=method,
            samples=arguments.samples,
            batch=1,
            ridge=ridge,
            first_order=False,
            include=network.prunable,
            progress=False,
        )
        outcome = {
            "w": Weights(model, network.prunable).vector(),
            "objective": result.objective,
            "grown": measured_gradients.grown,  # type: ignore[attr-defined]
            "seconds": time.perf_counter() - began,
        }
        torch.save(outcome, Path(folder) / f"{method}-{size}-{rank}.pt")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, 2, 4):
            mp.spawn(  # type: ignore[attr-defined, no-untyped-call]
                work, (size, folder, arguments), nprocs=size
            )
        report(Path(folder), arguments.samples)


def report(folder: Path, samples: int) -> None:
    print("method     ranks  support  weights   objective      A/N MB  grown/(A/N)  seconds")
    for method in METHODS:
        alone = torch.load(folder / f"{method}-1-0.pt", weights_only=True)
        for size in (1, 2, 4):
            ranks = [
                torch.load(folder / f"{method}-{size}-{rank}.pt", weights_only=True)
                for rank in range(size)
            ]
            assert all(torch.equal(other["w"], ranks[0]["w"]) for other in ranks)
            w, w0 = ranks[0]["w"], alone["w"]
            both = (w != 0) & (w0 != 0)
            share = len(w) * samples * 4 / size
            print(
                f"{method:10} {size:5}  {int(((w != 0) != (w0 != 0)).sum()):7}  "
                f"{float((w - w0)[both].abs().max()):.1e}  {ranks[0]['objective']:.7g}  "
                f"{share / 1e6:8.0f}  {max(r['grown'] for r in ranks) / share:11.2f}  "
                f"{ranks[0]['seconds']:7.1f}"
            )


if __name__ == "__main__":
    main()
