"""Speedup of `chita.accelerate` over the dense model on a CPU, and its break-even sparsity.

The networks are the trained MLPNet that ships with chita and an MLP 784-1024-1024-10 with random
weights, both pruned by magnitude. For each sparsity and batch size the script chooses the layer
forms, then times the whole model and the dense model in turn. A dash means that no layer is faster
and the model stays dense. "least" is the ratio of the least times, which depends least on the load
of the machine. The break-even is the sparsity from which the whole model is faster than the dense
one.

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
    """Run the benchmark and print the results."""
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
    """Return an MLP with two hidden layers of 1024 units and random weights."""
    model = nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


@torch.no_grad()
def measure(model: nn.Module, x: torch.Tensor, sparsity: float) -> dict[str, Any]:
    """Measure one sparsity at one batch size."""
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
    """Return the least measured sparsity from which the model is always faster than dense."""
    gaining = [row["gains"] for row in rows]
    from_here = [row["sparsity"] for i, row in enumerate(rows) if all(gaining[i:])]
    return f"{from_here[0]:g}" if from_here else "none: never faster"


def describe(row: dict[str, Any]) -> str:
    start = f"  {row['sparsity']:.2f}  dense {row['dense_ms']:8.4f} ms"
    if row["gain"] is None:
        return f"{start}         -     no layer is faster"
    low, median, high = row["gain"]
    layers = ", ".join(f"{name}: {form}" for name, form in row["layers"].items())
    gain = f"{median:6.2f} times ({low:.2f} to {high:.2f}), least {row['least_gain']:.2f}"
    return f"{start}  {row['ms']:8.4f} ms  {gain}  {layers}"


if __name__ == "__main__":
    main()
