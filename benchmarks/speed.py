"""What zeros are worth on a CPU: `chita.accelerate` against dense, and from which sparsity it pays.

MLPNet, trained, as it ships, and an MLP 784-1024-1024-10 with random weights, both pruned by
magnitude. Each sparsity and batch size is measured alone: the layers are chosen, then the whole
model is timed against dense in turns. Where no layer gains, the model is the dense one, and a dash
is shown. "Least" is the gain by the least times, which a busy machine disturbs least. The
break-even is the sparsity from which on the whole model beats dense.

    OMP_NUM_THREADS=2 python benchmarks/speed.py [--sparsity 0.98] [--batch 256] [--out speed.json]
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import chita
from chita import zoo
from chita.deploy.fast.accelerate import DENSE
from chita.deploy.speed import LAYER_BY_LAYER, compare
from chita.zoo.trained import open_trained
from chita.zoo.training import initialise

SPARSITIES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
BATCHES = (1, 32, 256)


def main() -> None:
    """Measure and print."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sparsity", type=float, nargs="+", default=SPARSITIES)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    load = ", ".join(f"{figure:.1f}" for figure in os.getloadavg())
    print(f"threads: {torch.get_num_threads()}, load averages at the start: {load}")
    found = []
    for name, model, shape in (
        ("MLPNet", open_trained(zoo.get("mlpnet")).build().eval(), (1, 28, 28)),
        ("784-1024-1024-10", perceptron(), (784,)),
    ):
        for batch in arguments.batch:
            x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0))
            rows = [measure(model, x, sparsity) for sparsity in arguments.sparsity]
            print(f"\n{name}, batch {batch}: break-even {break_even(rows)}")
            for row in rows:
                print(describe(row))
            found += [{"network": name, "batch": batch, **row} for row in rows]
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n")


def perceptron() -> nn.Module:
    """An MLP with two layers of 1024."""
    model = nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


@torch.no_grad()
def measure(model: nn.Module, x: torch.Tensor, sparsity: float) -> dict[str, Any]:
    """One sparsity at one batch size."""
    pruned = chita.prune(
        model, [], sparsity=sparsity, method="magnitude", inplace=False, progress=False
    ).model
    fast = chita.accelerate(pruned, x)
    paths = {DENSE: partial(pruned, x), LAYER_BY_LAYER: partial(fast.model, x)}
    found = compare(paths, x.device, len(x), {}, fast.layers)
    ours, dense = found.timings[LAYER_BY_LAYER], found.timings[DENSE]
    return {
        "sparsity": sparsity,
        "dense_ms": 1e3 * dense.median,
        "ms": 1e3 * ours.median,
        "least_gain": min(dense.seconds) / min(ours.seconds),
        "gain": ours.gains(dense) if fast.changed else None,
        "gains": fast.changed and ours.beats(dense),
        "layers": {row.name: row.chosen for row in fast.layers},
    }


def break_even(rows: list[dict[str, Any]]) -> str:
    """The least sparsity from which on the model gains at all that were measured."""
    gaining = [row["gains"] for row in rows]
    from_here = [row["sparsity"] for i, row in enumerate(rows) if all(gaining[i:])]
    return f"{from_here[0]:g}" if from_here else "none: nothing gains"


def describe(row: dict[str, Any]) -> str:
    start = f"  {row['sparsity']:.2f}  dense {row['dense_ms']:8.4f} ms"
    if row["gain"] is None:
        return f"{start}         -     no layer gains"
    low, median, high = row["gain"]
    layers = ", ".join(f"{name}: {form}" for name, form in row["layers"].items())
    gain = f"{median:6.2f} times ({low:.2f} to {high:.2f}), least {row['least_gain']:.2f}"
    return f"{start}  {row['ms']:8.4f} ms  {gain}  {layers}"


if __name__ == "__main__":
    main()
