"""tab:accuracy: every method at the paper's sparsities, as the paper picks lambda and as we do.

"grid" is the setting of the method's grid with the best mean accuracy on the test set, as in the
paper; "auto" is ridge="auto", chosen on held-out calibration samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any

from chita.bench import paper
from chita.bench.average import standard_error
from chita.bench.benchmark import Bench
from chita.bench.cells import Cell, Record
from chita.bench.networks import Subject
from chita.bench.settings import DEFAULTS, Setting, has_no_ridge, paper_grid
from chita.bench.table1_layout import draw_table1, table1_text
from chita.bench.write import Report, Row
from chita.evaluate import accuracy
from chita.prune import prune

COLUMNS = ("network", "method", "sparsity", "choice", "accuracy", "standard_error", "paper")
CHOICES = ("grid", "auto")
NOT_MEASURED = "n/a"
NEEDS_IMAGENET = "needs ImageNet"
IMAGENET_METHODS = {  # the networks that need ImageNet, and the methods the paper has for them
    "mobilenetv1": ("magnitude", "woodfisher", "cbs", "chita-bso", "chita++"),
    "resnet50": ("magnitude", "m-fac", "chita-bso"),
}


@dataclass(frozen=True)
class Table1:
    """The table at the sparsities of each network, with the settings of each method's grid."""

    sparsities: Mapping[str, Sequence[float]] = field(default_factory=lambda: paper.SPARSITIES)
    grid: Callable[[str, str], list[Setting]] = paper_grid

    def cells(self, bench: Bench) -> list[Cell]:
        """All methods for one seed, then for the next, so that an early table has every row."""
        return [
            _cell(subject, setting, sparsity, seed)
            for seed in range(bench.seeds)
            for subject in bench.subjects.values()
            if subject.network.name in self.sparsities  # the paper has no folded MobileNetV1
            for method in IMAGENET_METHODS.get(subject.name, _methods())
            for sparsity in self.sparsities[subject.network.name]
            for setting in self.grid(subject.network.name, method)
        ]

    def report(self, records: Sequence[Record]) -> Report:
        measured = list(_measured_rows(records))
        here = {row["network"] for row in measured}
        rows = [*measured, *(row for row in _imagenet_rows() if row["network"] not in here)]
        return Report(
            title="Accuracy after one-shot pruning, in percent (tab:accuracy)",
            rows=[{column: row[column] for column in COLUMNS} for row in rows],
            text=table1_text(rows),
            draw=lambda figure: draw_table1(figure, measured),
        )


def _methods() -> list[str]:
    """The methods of the table; CHITA's single stage is chita-bso."""
    return [name for name in paper.NAMES if name != "chita-cd"]


def _cell(subject: Subject, setting: Setting, sparsity: float, seed: int) -> Cell:
    key = {"network": subject.name, "sparsity": sparsity, "seed": seed, **vars(setting)}

    def compute() -> dict[str, Any]:
        arguments: dict[str, Any] = {**vars(setting), "include": subject.network.prunable}
        result = prune(
            subject.model(seed),
            subject.calibration(seed),
            sparsity=sparsity,
            progress=False,
            seed=seed,
            **arguments,
        )
        return {
            "accuracy": accuracy(result.model, subject.test),
            "seconds": result.seconds.total,
            "ridge": result.stages[-1].ridge,
        }

    return Cell(key, compute)


def _measured_rows(records: Sequence[Record]) -> Iterator[Row]:
    places = dict.fromkeys((r["key"]["network"], r["key"]["sparsity"]) for r in records)
    for network in dict.fromkeys(network for network, _ in places):
        sparsities = sorted(sparsity for name, sparsity in places if name == network)
        for method, sparsity, choice in product(_methods(), sparsities, CHOICES):
            here = {"network": network, "method": method, "sparsity": sparsity}
            found = [r for r in records if here.items() <= r["key"].items()]
            figures = _best(found, choice)
            yield {
                **here,
                "choice": choice,
                "accuracy": statistics.mean(figures) if figures else NOT_MEASURED,
                "standard_error": standard_error(figures),
                "paper": paper.paper_accuracy(network, method, sparsity),
                "seeds": len(figures),
            }


def _best(records: Sequence[Record], choice: str) -> list[float]:
    """The accuracies, one for each seed, of the setting that the choice falls on.

    Where some settings have more seeds than others, only those with the most compete. A method
    without lambda has one setting, which is both choices.
    """
    groups: dict[Setting, list[float]] = {}
    for record in records:
        groups.setdefault(_setting(record), []).append(record["accuracy"])
    automatic = {s: figures for s, figures in groups.items() if s.ridge == "auto"}
    fixed = {s: figures for s, figures in groups.items() if s.ridge != "auto"}
    by_choice = automatic if choice == "auto" else fixed
    chosen = groups if all(has_no_ridge(s.method) for s in groups) else by_choice
    most = max((len(figures) for figures in chosen.values()), default=0)
    complete = [figures for figures in chosen.values() if len(figures) == most]
    return max(complete, key=statistics.mean, default=[])


def _setting(record: Record) -> Setting:
    key = {**DEFAULTS, **record["key"]}
    return Setting(**{field.name: key[field.name] for field in fields(Setting)})


def _imagenet_rows() -> Iterator[Row]:
    """What waits for the networks and the data: the paper's figures alone."""
    for network, methods in IMAGENET_METHODS.items():
        for method, sparsity in product(methods, paper.SPARSITIES[network]):
            yield {
                "network": network,
                "method": method,
                "sparsity": sparsity,
                "choice": "grid",
                "accuracy": NEEDS_IMAGENET,
                "standard_error": None,
                "paper": paper.paper_accuracy(network, method, sparsity),
                "seeds": 0,
            }
