"""N:M on ResNet20 and CIFAR-10: CHITA++ against the largest weights of each group and OBD's.

Accuracy on the test set, how far it is below dense, and the weights that every group keeps, counted
from the masks. `--augment` calibrates on images shifted and mirrored as in training.

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
    """Measure and print."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of the networks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pattern", nargs="+", default=["2:4", "1:4"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--stages", type=int, default=60)
    parser.add_argument("--hold", type=float, default=0.0)
    parser.add_argument("--ridge", type=float, help="lambda; chosen on held-out samples by default")
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--out", type=Path, help="a file for lines of JSON")
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
            f"{row['dense'] - row['accuracy']:.2f} below dense; groups that keep so many: "
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
    """Every pattern, seed and method."""
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
    """The training set in an order drawn from the seed, each time with other shifts if asked."""
    if not augment:
        return subject.calibration(seed)
    return data.Batches(
        subject.splits.train.shuffled(seed),
        subject.network.batch_size,
        augment=subject.network.recipe.augment,
        seed=seed,
        device=subject.device,
    )


if __name__ == "__main__":
    main()
