"""Accuracy of all methods at the paper's sparsities, lambda from a grid or auto (tab:accuracy)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any

from chita.model.accuracy import accuracy
from chita.paper.added_methods import added_methods
from chita.paper.average import standard_error
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.networks import Subject
from chita.paper.settings import (
    DEFAULTS,
    PAPER_SCHEDULE,
    PAPER_STAGES,
    Setting,
    has_no_ridge,
    paper_grid,
    version_key,
)
from chita.paper.table1_layout import draw_table1, table1_text
from chita.paper.write import Report, Row
from chita.pruning.prune import prune
from chita.report import published as paper


def _is_continued(setting: Setting) -> bool:
    return setting.continuation > 0


def _has_paper_stages(setting: Setting) -> bool:
    return (
        setting.stages == PAPER_STAGES
        and setting.schedule == PAPER_SCHEDULE
        and setting.hold == 0
        and setting.continuation == 0
    )


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Attributes:
        title: the name of the row.
        method: the method of the row.
        takes: returns whether a setting of the method belongs to the row.
        main: whether to show the row even without measurements.
        in_paper: whether to show the paper's figures for the method.
    """

    title: str
    method: str
    takes: Callable[[Setting], bool] = lambda setting: True
    main: bool = True
    in_paper: bool = True


def _entries_of(method: str, title: str) -> list[Entry]:
    if method == "chita-bso":
        continued = f"{title}, continuation"
        return [
            Entry(title, method, lambda setting: not _is_continued(setting)),
            Entry(continued, method, _is_continued, main=False, in_paper=False),
        ]
    if method == "chita++":
        return [
            Entry(f"{title}, paper's 15 stages", method, _has_paper_stages, main=False),
            Entry(title, method, lambda setting: not _has_paper_stages(setting)),
        ]
    return [Entry(title, method)]


# Each setting of a method belongs to exactly one of its rows. Single-stage CHITA is chita-bso.
ENTRIES = tuple(
    entry
    for method, title in paper.NAMES.items()
    if method != "chita-cd"
    for entry in _entries_of(method, title)
)
TABLE_METHODS = tuple(dict.fromkeys(entry.method for entry in ENTRIES))


def all_entries() -> list[Entry]:
    """Return the rows of the paper's methods, then one for each added method."""
    added = [Entry(name, name, main=False, in_paper=False) for name in added_methods()]
    return [*ENTRIES, *added]


COLUMNS = (
    "network",
    "method",
    "sparsity",
    "choice",
    "accuracy",
    "standard_error",
    "paper",
    "seeds",
    "setting",
    "grid_size",
)
CHOICES = ("grid", "auto")
NOT_MEASURED = "n/a"
NEEDS_IMAGENET = "needs ImageNet"
IMAGENET_METHODS = {  # the networks that need ImageNet, and their methods in the paper
    "mobilenetv1": ("magnitude", "woodfisher", "cbs", "chita-bso", "chita++"),
    "resnet50": ("magnitude", "m-fac", "chita-bso"),
}

Groups = dict[Setting, list[float]]  # the accuracies of all seeds


@dataclass(frozen=True)
class Table1:
    """All methods at the sparsities of each network, with the settings of the grid."""

    sparsities: Mapping[str, Sequence[float]] = field(default_factory=lambda: paper.SPARSITIES)
    grid: Callable[[str, str], list[Setting]] = paper_grid

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the cells seed by seed, so that an early table has all rows."""
        return [
            _cell(subject, setting, sparsity, seed)
            for seed in range(bench.seeds)
            for subject in bench.subjects.values()
            if subject.network.name in self.sparsities  # the paper has no folded MobileNetV1
            for method in (*IMAGENET_METHODS.get(subject.name, TABLE_METHODS), *added_methods())
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


def _cell(subject: Subject, setting: Setting, sparsity: float, seed: int) -> Cell:
    key = {
        "network": subject.name,
        "sparsity": sparsity,
        "seed": seed,
        **vars(setting),
        **version_key(setting.method),
    }

    def compute() -> dict[str, Any]:
        result = prune(
            subject.model(seed),
            subject.calibration(seed, augment=setting.augment),
            sparsity=sparsity,
            include=subject.network.prunable,
            progress=False,
            seed=seed,
            **setting.arguments(),
        )
        return {
            "accuracy": accuracy(result.model, subject.test),
            "seconds": result.seconds.total,
            "ridge": result.stages[-1].ridge,
        }

    return Cell(key, compute)


def _measured_rows(records: Sequence[Record]) -> Iterator[Row]:
    """Yield a row for each network, entry, sparsity and choice."""
    by_place: dict[tuple[str, float], list[Record]] = {}
    for record in records:
        place = record["key"]["network"], record["key"]["sparsity"]
        by_place.setdefault(place, []).append(record)
    for network in dict.fromkeys(network for network, _ in by_place):
        sparsities = sorted(sparsity for name, sparsity in by_place if name == network)
        here = [_by_setting(by_place[network, sparsity]) for sparsity in sparsities]
        for entry in all_entries():
            groups = [_of_entry(each, entry) for each in here]
            if not (entry.main or any(groups)):
                continue
            for (sparsity, group), choice in product(zip(sparsities, groups, strict=True), CHOICES):
                yield _row(network, entry, sparsity, choice, group)


def _row(network: str, entry: Entry, sparsity: float, choice: str, groups: Groups) -> Row:
    compared = _compared(groups, choice)
    setting = max(compared, key=lambda each: statistics.mean(compared[each]), default=None)
    figures = compared[setting] if setting is not None else []
    return {
        "network": network,
        "method": entry.title,
        "sparsity": sparsity,
        "choice": choice,
        "accuracy": statistics.mean(figures) if figures else NOT_MEASURED,
        "standard_error": standard_error(figures),
        "paper": _published(network, entry, sparsity),
        "seeds": len(figures),
        "setting": setting.describe() if setting is not None else None,
        "grid_size": len(compared),
    }


def _by_setting(records: Sequence[Record]) -> Groups:
    """Return the accuracies of each setting, one for each seed."""
    groups: Groups = {}
    for record in records:
        groups.setdefault(_setting(record), []).append(record["accuracy"])
    return groups


def _of_entry(groups: Groups, entry: Entry) -> Groups:
    return {s: each for s, each in groups.items() if s.method == entry.method and entry.takes(s)}


def _compared(groups: Groups, choice: str) -> Groups:
    """Return the settings that a choice compares.

    If some settings have more seeds than others, only those with the most seeds are compared. A
    method without lambda has one setting, which counts for both choices.
    """
    chosen = {
        setting: figures
        for setting, figures in groups.items()
        if has_no_ridge(setting.method) or (setting.ridge == "auto") == (choice == "auto")
    }
    most = max(map(len, chosen.values()), default=0)
    return {setting: figures for setting, figures in chosen.items() if len(figures) == most}


def _setting(record: Record) -> Setting:
    key = {**DEFAULTS, **record["key"]}
    return Setting(**{field.name: key[field.name] for field in fields(Setting)})


def _published(network: str, entry: Entry, sparsity: float) -> float | None:
    return paper.paper_accuracy(network, entry.method, sparsity) if entry.in_paper else None


def _imagenet_rows() -> Iterator[Row]:
    """Yield the paper's figures for the networks that need ImageNet."""
    for network, methods in IMAGENET_METHODS.items():
        shown = [entry for entry in ENTRIES if entry.main and entry.method in methods]
        for entry, sparsity in product(shown, paper.SPARSITIES[network]):
            row = _row(network, entry, sparsity, "grid", {})
            yield {**row, "accuracy": NEEDS_IMAGENET}
