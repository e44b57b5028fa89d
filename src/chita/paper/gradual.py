"""Gradual pruning: every method trains a sparse network (table:gradualpruning, :resnet50gradual).

The paper's tables use ImageNet. Here all methods train ResNet20 on CIFAR-10 for the same number of
epochs. They start from the same dense network or, where their papers do so, from fresh weights; the
reference for the latter is a dense network trained from fresh weights for the same epochs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from chita.gradual.recipe import GradualRecipe, shipped_recipe
from chita.gradual.registry import METHODS, REFERENCES, GradualMethod
from chita.gradual.trainer import train_sparse
from chita.model.accuracy import accuracy
from chita.paper.average import near_best, standard_error
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.gradual_layout import draw_gradual, gradual_text
from chita.paper.networks import Subject
from chita.paper.write import Report, Row

Settings = Mapping[str, Mapping[str, Any]]  # the options of each method, by its name

# All methods use the same Fisher matrix, with the samples and the block size of the paper's
# MobileNetV1; each method chooses its lambda by the held-out loss at each pruning step.
FISHER = {"samples": 1000, "batch": 16, "block_size": 2000}
SETTINGS: Settings = {
    "chita-bso": {**FISHER, "metric": "fisher"},
    "chita++": {**FISHER, "metric": "fisher"},
    "woodfisher": FISHER,
    "m-fac": FISHER,
}
# Increase the version of a method when it changes, so that its old cells are computed again.
# 2: other methods leave those layers dense that their papers leave dense; CHITA drops dead columns.
VERSIONS = {"incremental": 2, "snfs": 2, "dnw": 2, "chita-bso": 2, "chita++": 2}
QUICK_FISHER = {"samples": 200, "batch": 1, "ridge": 1e-3}
QUICK_SETTINGS: Settings = {
    "chita-bso": {**QUICK_FISHER, "first_order": False},
    "chita++": {**QUICK_FISHER, "first_order": False},
    "woodfisher": {**QUICK_FISHER, "block_size": 200},
    "m-fac": {**QUICK_FISHER, "block_size": 2000},
}


@dataclass(frozen=True)
class Gradual:
    """All methods at the sparsities of the paper's ResNet50, trained for `epochs` epochs each.

    Attributes:
        sparsities: the sparsities.
        epochs: the epochs of each training.
        settings: settings of methods by name.
        distill: whether all methods train on the outputs of the dense network, without labels.
    """

    sparsities: Sequence[float] = (0.9, 0.95, 0.98)
    epochs: int = 20
    settings: Settings = field(default_factory=lambda: SETTINGS)
    distill: bool = False

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the cells of one seed after the other, with the methods in registration order.

        The reference does not depend on the sparsity and has one cell for each seed.
        """
        subject = bench.subject("resnet20")
        recipe = shipped_recipe(subject.network.name)
        recipe = replace(recipe, epochs=self.epochs, distill=self.distill)
        points = [
            *((method, sparsity) for method in METHODS for sparsity in self.sparsities),
            *((reference, 0.0) for reference in REFERENCES),
        ]
        return [
            _cell(subject, recipe, method, self.settings.get(method, {}), sparsity, seed)
            for seed in range(bench.seeds)
            for method, sparsity in points
        ]

    def report(self, records: Sequence[Record]) -> Report:
        rows = _rows(records)
        return Report(
            title=f"Accuracy after {self.epochs} epochs of training to a sparsity",
            rows=rows,
            text=gradual_text(rows),
            draw=lambda figure: draw_gradual(figure, rows),
        )


def _cell(
    subject: Subject,
    recipe: GradualRecipe,
    method: str,
    settings: Mapping[str, Any],
    sparsity: float,
    seed: int,
) -> Cell:
    key: dict[str, Any] = {
        "bench": "gradual",
        "network": subject.name,
        "method": method,
        "sparsity": sparsity,
        "seed": seed,
        "recipe": {**asdict(recipe), "methods": dict(settings)},
    }
    if not recipe.distill:  # as in the keys of cells from before this option
        del key["recipe"]["distill"]
    if method in VERSIONS:
        key["version"] = VERSIONS[method]

    def compute() -> dict[str, Any]:
        model = subject.model(seed)
        dense = accuracy(model, subject.test)
        start = time.perf_counter()
        history = train_sparse(
            model,
            subject.splits,
            replace(recipe, methods={method: settings}),
            method=method,
            sparsity=sparsity,
            seed=seed,
            device=subject.device,
            include=subject.network.prunable,
        )
        return {
            "dense": dense,
            "accuracy": history.accuracy,
            "weights": history.weights,
            "nonzeros": history.nonzeros,
            "by_epoch": [row.accuracy for row in history.rows],
            "seconds": time.perf_counter() - start,
        }

    return Cell(key, compute)


def _rows(records: Sequence[Record]) -> list[Row]:
    """Return the means over the seeds: the reference, then all methods at each sparsity."""
    rows = [
        _row(found, REFERENCES[name], None)
        for name in REFERENCES
        if (found := _found(records, name, 0.0))
    ]
    for sparsity in sorted(
        {r["key"]["sparsity"] for r in records if r["key"]["method"] in METHODS}
    ):
        here = {name: _found(records, name, sparsity) for name in METHODS}
        here = {name: found for name, found in here.items() if found}
        accuracies = [[record["accuracy"] for record in found] for found in here.values()]
        near = near_best(
            [statistics.mean(each) for each in accuracies],
            [standard_error(each) for each in accuracies],
        )
        rows += [
            _row(here[name], METHODS[name], mark) for name, mark in zip(here, near, strict=True)
        ]
    return rows


def _found(records: Sequence[Record], method: str, sparsity: float) -> list[Record]:
    here = {"method": method, "sparsity": sparsity}
    return [record for record in records if here.items() <= record["key"].items()]


def _row(found: Sequence[Record], method: GradualMethod, near: bool | None) -> Row:
    """Return the mean over the seeds of one method at one sparsity."""
    accuracies = [record["accuracy"] for record in found]
    drops = [100 * (r["accuracy"] - r["dense"]) / r["dense"] for r in found]
    return {
        "network": found[0]["key"]["network"],
        "method": method.title,
        "from_scratch": method.from_scratch,
        "sparsity": 100 * (1 - found[0]["nonzeros"] / found[0]["weights"]),
        "target": found[0]["key"]["sparsity"],
        "dense": statistics.mean(record["dense"] for record in found),
        "accuracy": statistics.mean(accuracies),
        "standard_error": standard_error(accuracies),
        "near_best": near,
        "relative_drop": statistics.mean(drops),
        "remaining": found[0]["nonzeros"],
        "epochs": found[0]["key"]["recipe"]["epochs"],
        "seeds": len(found),
        "seconds": statistics.mean(record["seconds"] for record in found),
    }
