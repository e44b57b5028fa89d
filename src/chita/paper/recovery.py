"""Recovery: `method="auto"` and rivals with the same budget, on the same samples.

`auto` has its default options. The rivals prune by another rule, and recover with the same budget.
The comparison of candidates is a part of the time of `auto`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from chita.data import Batches
from chita.errors import ChitaError
from chita.model.accuracy import accuracy
from chita.paper.added_methods import added_methods
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.networks import Subject
from chita.paper.recovery_layout import (
    AUTO,
    NO_RECOVERY,
    draw_recovery,
    recovery_rows,
    recovery_text,
)
from chita.paper.settings import recovery_key, version_key
from chita.paper.timed_prune import timed_prune
from chita.paper.write import Report
from chita.pruning.result import PruneResult
from chita.report.published import EMBEDDED

logger = logging.getLogger(__name__)

RIVALS: dict[str, dict[str, Any]] = {  # arguments of chita.prune, by the name in the tables
    "magnitude": {"method": "magnitude"},
    "LAMP": {"method": "lamp"},
    "OBD": {"method": "obd", "batch": 1},  # the Fisher mask, with a ridge
    "CHITA": {"method": "chita-bso", "batch": 1, "first_order": False},
}


@dataclass(frozen=True)
class Group:
    """The cells of one network and number of calibration images.

    Attributes:
        network: the name of the network.
        images: the number of calibration images, if the data have as many.
        sparsities: the sparsities, or patterns such as "2:4".
        batch: the images in a calibration batch.
        also_without: the sparsities at which `auto` is also run with recover=False.
    """

    network: str
    images: int
    sparsities: tuple[float | str, ...]
    batch: int = 128
    also_without: tuple[float | str, ...] = ()

    def sparsities_of(self, method: str) -> tuple[float | str, ...]:
        """Return the sparsities at which a method is run."""
        return self.also_without if method == NO_RECOVERY else self.sparsities


GROUPS = (
    Group("mlpnet", 60_000, (0.9, 0.95, 0.98), also_without=(0.9, 0.95, 0.98)),
    Group("resnet20", 50_000, (0.9, 0.95, 0.98), also_without=(0.9,)),
    Group("resnet20", 20_000, (0.9, 0.95, 0.98)),
    Group("resnet20", 20_000, ("2:4", "1:4")),
    Group("resnet20", 1000, (0.7, 0.9)),
    Group("mobilenetv1-folded", 2000, (0.5, 0.7, 0.8), batch=64),
)
QUICK_GROUPS = (Group("mlpnet", 4000, (0.95, 0.98)),)


@dataclass(frozen=True)
class RecoveryBench:
    """`auto` and its rivals with the same recovery.

    A cell is a network, a number of images, a sparsity, a seed and a method.

    Attributes:
        groups: what to run; networks without trained weights are left out.
        rivals: the arguments of chita.prune for each rival, by name. Methods that a user has
            registered are rivals with default arguments.
        options: other arguments of all methods that recover; none in the full size.
    """

    groups: Sequence[Group] = GROUPS
    rivals: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: RIVALS)
    options: Mapping[str, Any] = field(default_factory=dict)

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the cells of one seed after the other, method by method."""
        found = list(self._found(bench))
        if not found:
            names = ", ".join(dict.fromkeys(group.network for group in self.groups))
            raise ChitaError(f"this benchmark needs the trained weights of one of {names}")
        return [
            cell
            for seed in range(bench.seeds)
            for cell in self._of_seed([_Place(*each, seed) for each in found])
        ]

    def _of_seed(self, places: Sequence[_Place]) -> list[Cell]:
        return [
            _cell(place, name, arguments, sparsity)
            for name, arguments in self._methods().items()
            for place in places
            for sparsity in place.group.sparsities_of(name)
        ]

    def _found(self, bench: Bench) -> Iterator[tuple[Group, Subject]]:
        """Yield the groups whose networks are available; MLPNet may be the embedded one."""
        for group in self.groups:
            subject = bench.subjects.get(group.network)
            if subject is None and group.network == "mlpnet":
                subject = bench.subjects.get(EMBEDDED)
            if subject is None:
                logger.info("%s is skipped: its weights or images were not given", group.network)
            else:
                yield group, subject

    def _methods(self) -> dict[str, dict[str, Any]]:
        """Return the arguments of all methods, in the order of computation."""
        rivals = {**self.rivals, **{name: {"method": name} for name in added_methods()}}
        return {
            AUTO: {"method": "auto", **self.options},
            **{name: {**given, "recover": True, **self.options} for name, given in rivals.items()},
            NO_RECOVERY: {"method": "auto", "recover": False},
        }

    def report(self, records: Sequence[Record]) -> Report:
        rows = recovery_rows(records)
        return Report(
            title="Recovery: auto and other methods with the same samples and budget",
            rows=rows,
            text=recovery_text(rows, records),
            draw=lambda figure: draw_recovery(figure, rows),
        )


@dataclass(frozen=True)
class _Place:
    """A group, its network and a seed, which the methods share."""

    group: Group
    subject: Subject
    seed: int

    @cached_property
    def dense(self) -> float:
        """The accuracy of the network before pruning."""
        return accuracy(self.subject.model(self.seed), self.subject.test)

    def calibration(self) -> list[tuple[Tensor, Tensor]]:
        """Return the calibration batches in memory, so that reading files takes no seconds."""
        images, group = self.subject.splits.train.shuffled(self.seed), self.group
        return list(Batches(images, group.batch, limit=group.images, device=self.subject.device))


def _cell(place: _Place, method: str, arguments: Mapping[str, Any], sparsity: float | str) -> Cell:
    group, subject, seed = place.group, place.subject, place.seed
    key = {
        "bench": "recovery",
        "network": subject.name,
        "images": group.images,
        "batch": group.batch,
        "row": method,
        "sparsity": sparsity,
        "seed": seed,
        "arguments": dict(arguments),
        **version_key(arguments["method"]),
        **recovery_key(arguments),
    }

    def compute() -> dict[str, Any]:
        batches, model = place.calibration(), subject.model(seed)
        result, seconds = timed_prune(
            model,
            batches,
            sparsity=sparsity,
            include=subject.network.prunable,
            seed=seed,
            **arguments,
        )
        return {
            "images": sum(len(labels) for _, labels in batches),
            "dense": place.dense,
            "accuracy": accuracy(model, subject.test),
            "seconds": seconds,
            "training_steps": result.training_steps,
            "sparsity": result.sparsity,
            "held_out_loss": result.held_out_loss,
            "gains": None if result.gains is None else asdict(result.gains),
            "stages": _stages(result),
        }

    return Cell(key, compute)


def _stages(result: PruneResult) -> list[dict[str, Any]]:
    """Return what each stage chose, and its losses on held-out samples."""
    kept = ("sparsity", "metric", "step", "ridge", "mask_loss", "solved_loss", "choice_loss")
    rows = (row.to_dict() for row in result.stages)
    return [{name: row[name] for name in (*kept, "recovery_steps")} for row in rows]
