"""Accuracy on the paper's own checkpoints (table tab:accuracy), as the paper picks it and as we do.

    python benchmarks/accuracy.py --network mlpnet --method chita++ --checkpoint FILE --out runs/acc

Every setting of the grid is run over the seeds; the "grid" column takes the best mean accuracy on
the test set, as the paper does, and the "auto" column lets chita choose lambda on held-out samples.
Each run is kept in OUT/cells.jsonl, so that an interrupted benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

import chita
from chita import data, zoo
from chita.batch_norm import reestimate_batch_norm
from chita.checkpoint import load_checkpoint
from chita.evaluate import accuracy

SPARSITIES = {
    "mlpnet": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98),
    "resnet20": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
}
PAPER = {
    ("mlpnet", "chita"): (93.97, 93.94, 93.80, 93.59, 92.46, 88.09, 46.25),
    ("mlpnet", "chita++"): (95.97, 95.93, 95.89, 95.80, 95.55, 94.70, 90.73),
    ("resnet20", "chita"): (91.37, 91.19, 90.60, 89.22, 84.12, 57.90, 15.60),
    ("resnet20", "chita++"): (91.25, 91.20, 91.04, 90.78, 90.38, 88.72, 79.32),
}


@dataclass(frozen=True)
class Setting:
    """One point of the grid: arguments of chita.prune."""

    method: str
    ridge: float | str
    batch: int
    samples: int
    first_order: bool = True
    stages: int | None = None
    iterations: int | None = None
    continuation: int = 0
    hold: float = 0.0
    schedule: str = "polynomial"
    block_size: int | None = None


def grid(network: str, method: str) -> Iterator[Setting]:
    """The automatic setting, and the part of the paper's grid that is worth the time.

    The paper also varies the IHT iterations; before a backsolve they change next to nothing here.
    """
    if method == "chita++":
        base = Setting("chita++", "auto", batch=16, samples=1000)
        yield base
        if network == "mlpnet":
            yield replace(base, ridge=1e-3, stages=15)  # the paper's number of stages
            yield replace(base, ridge=3e-4)
        else:
            yield from (replace(base, ridge=ridge) for ridge in (3e-3, 1e-2, 1e-3))
        return
    base = Setting("chita-bso", "auto", batch=1, samples=1000, first_order=False)
    yield base
    if network == "resnet20":  # with blocks, a thousand samples say more about each weight
        yield from (replace(base, ridge=ridge, block_size=2000) for ridge in (1e-5, 1e-4))
    for ridge, first_order in itertools.product((1e-4, 1e-3, 1e-2, 1e-1), (False, True)):
        fixed = replace(base, ridge=ridge, first_order=first_order)
        yield fixed
        if network == "mlpnet":
            yield replace(fixed, continuation=15)


class Bench:
    """A network, its data, and the cells computed so far."""

    def __init__(self, network: str, checkpoint: Path, device: str, out: Path) -> None:
        self.network, self.checkpoint, self.device = zoo.get(network), checkpoint, device
        self.splits = data.load(self.network.data)
        self.test = data.Batches(self.splits.test, 2000, device=device)
        self.out = out
        self.out.mkdir(parents=True, exist_ok=True)
        self.cells = [json.loads(line) for line in self._lines()]
        self.dense: dict[int, nn.Module] = {}

    def _lines(self) -> list[str]:
        file = self.out / "cells.jsonl"
        return file.read_text().splitlines() if file.exists() else []

    def model(self, seed: int) -> nn.Module:
        """The trained network, its batch norm re-estimated over augmented training data."""
        if seed not in self.dense:
            model = self.network.build().to(self.device)
            load_checkpoint(model, self.checkpoint)
            augment = self.network.recipe.augment
            if augment is not None:
                shuffled = data.Batches(
                    self.splits.train, 128, shuffle=True, augment=augment, seed=seed,
                    device=self.device,
                )  # fmt: skip
                reestimate_batch_norm(model, shuffled)
            self.dense[seed] = copy.deepcopy(model)
        return copy.deepcopy(self.dense[seed])

    def run(self, sparsity: float, setting: Setting, seed: int) -> None:
        """One cell, unless it is there already."""
        key = {"network": self.network.name, "sparsity": sparsity, "seed": seed, **vars(setting)}
        if any(_has(cell, key) for cell in self.cells):
            return
        calibration = data.Batches(self.splits.train.shuffled(seed), 1024, device=self.device)
        arguments: dict[str, Any] = {**vars(setting), "include": self.network.prunable}
        result = chita.prune(
            self.model(seed), calibration, sparsity=sparsity, progress=False, **arguments
        )
        cell = {
            "key": key,
            "accuracy": accuracy(result.model, self.test),
            "seconds": result.seconds.total,
            "ridge": result.stages[-1].ridge,
        }
        self.cells.append(cell)
        with (self.out / "cells.jsonl").open("a") as file:
            file.write(json.dumps(cell) + "\n")
        print(json.dumps(cell), flush=True)

    def table(self, method: str, sparsities: tuple[float, ...], settings: list[Setting]) -> None:
        """The best of the grid, and the automatic choice, beside the paper's figures."""
        paper = PAPER[self.network.name, method]
        print(
            f"\n{self.network.name}, {method}\nsparsity   paper   grid (se)      auto (se)   best"
        )
        for sparsity in sparsities:
            groups = [(self.accuracies(sparsity, setting), setting) for setting in settings]
            fixed = [group for group in groups if group[0] and group[1].ridge != "auto"]
            auto = [group[0] for group in groups if group[0] and group[1].ridge == "auto"]
            fixed.sort(key=lambda group: statistics.mean(group[0]), reverse=True)
            found, best = fixed[0] if fixed else ([], None)
            figures = "   ".join(_mean_and_error(values) for values in (found, *auto))
            published = paper[SPARSITIES[self.network.name].index(sparsity)]
            print(f"{sparsity:7.2f} {published:8.2f}   {figures}   {best}")

    def accuracies(self, sparsity: float, setting: Setting) -> list[float]:
        wanted = {"network": self.network.name, "sparsity": sparsity, **vars(setting)}
        return [cell["accuracy"] for cell in self.cells if _has(cell, wanted)]


def _has(cell: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether this is such a cell; one written before a setting was there has its default."""
    key = {**vars(Setting("", "", 0, 0)), **cell["key"]}
    return {name: key[name] for name in wanted} == wanted


def _mean_and_error(values: list[float]) -> str:
    if not values:
        return "-".center(13)
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.mean(values):6.2f} ({error:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--network", choices=sorted(SPARSITIES), required=True)
    parser.add_argument("--method", choices=("chita", "chita++"), required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sparsities", type=float, nargs="+")
    parser.add_argument("--ridges", nargs="+", help="these settings of the grid alone; or auto")
    arguments = parser.parse_args()
    bench = Bench(arguments.network, arguments.checkpoint, arguments.device, arguments.out)
    settings = list(grid(arguments.network, arguments.method))
    if arguments.ridges:
        wanted = {ridge if ridge == "auto" else float(ridge) for ridge in arguments.ridges}
        settings = [setting for setting in settings if setting.ridge in wanted]
    sparsities = tuple(arguments.sparsities or SPARSITIES[arguments.network])
    for seed, sparsity, setting in itertools.product(range(arguments.seeds), sparsities, settings):
        bench.run(sparsity, setting, seed)
    bench.table(arguments.method, sparsities, settings)


if __name__ == "__main__":
    main()
