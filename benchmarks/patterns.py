"""N:M pruning of ResNet20 on CIFAR-10: CHITA++ compared with magnitude and OBD.

The script prints the test accuracy, its difference to the dense network, and the number of weights
that each group keeps, counted from the masks. `--augment` calibrates on images shifted and mirrored
as in training.

    python benchmarks/patterns.py --checkpoints FOLDER --device cuda --hold 0.4
    python benchmarks/patterns.py --checkpoints FOLDER --device cuda --pattern 1:4 \
        --stages 120 --hold 0.5 --ridge 0.01 --augment
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch

import chita
from chita import data
from chita.model.accuracy import accuracy
from chita.paper.networks import Subject, find_subjects


def main() -> None:
    """Run the benchmark and print the results."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pattern", nargs="+", default=["2:4", "1:4"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--stages", type=int, default=60)
    parser.add_argument("--hold", type=float, default=0.0)
    parser.add_argument("--ridge", type=float, help="lambda; default: chosen on held-out samples")
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--out", type=Path, help="JSON Lines file to append results to")
    given = parser.parse_args()
    cache = Path(gettempdir()) / "chita-patterns"
    cache.mkdir(exist_ok=True)
    subject = find_subjects(given.checkpoints, device=torch.device(given.device), out=cache)[
        "resnet20"
    ]
    ours = {
        "method": "chita++",
        "stages": given.stages,
        "hold": given.hold,
        "ridge": "auto" if given.ridge is None else given.ridge,
    }
    methods: dict[str, dict[str, Any]] = {
        "magnitude": {"method": "magnitude"},
        "OBD": {"method": "obd", "batch": 1},
        "CHITA++": ours,
    }
    for row in rows(subject, methods, given.pattern, given.seeds, augment=given.augment):
        print(
            f"{row['pattern']} {row['method']}, seed {row['seed']}: {row['accuracy']:.2f} %, "
            f"{row['dense'] - row['accuracy']:.2f} below dense; groups by kept weights: "
            f"{row['groups']}; {row['seconds']:.0f} s",
            flush=True,
        )
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def rows(
    subject: Subject,
    methods: dict[str, dict[str, Any]],
    patterns: list[str],
    seeds: int,
    *,
    augment: bool,
) -> Iterator[dict[str, Any]]:
    """Yield a row for every pattern, seed and method."""
    for pattern in patterns:
        for seed in range(seeds):
            for name, arguments in methods.items():
                model = subject.model(seed)
                dense = accuracy(model, subject.test)
                result = chita.prune(
                    model,
                    calibration(subject, seed, augment=augment),
                    sparsity=pattern,
                    include=subject.network.prunable,
                    seed=seed,
                    progress=False,
                    **arguments,
                )
                yield {
                    "pattern": pattern,
                    "method": name,
                    "seed": seed,
                    "dense": dense,
                    "accuracy": accuracy(model, subject.test),
                    "groups": result.groups,
                    "seconds": result.seconds.total,
                    "arguments": arguments,
                    "augment": augment,
                }


def calibration(subject: Subject, seed: int, *, augment: bool) -> data.Batches:
    """Return the training set in random order, augmented anew in each pass if requested."""
    if not augment:
        return subject.calibration(seed)
    return data.Batches(
        subject.splits.train.shuffled(seed),
        subject.network.batch_size,
        augment=subject.network.augment,
        seed=seed,
        device=subject.device,
    )


if __name__ == "__main__":
    main()
