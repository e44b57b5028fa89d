"""Recovery: `method="auto"` and rivals that train as long as it does, on the same samples.

`auto` has its default options. The rivals prune by another rule and then recover with as many
training steps as `auto` took in the same cell, so that they differ in what is trained, not in how
long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from chita.data import Batches
from chita.errors import ChitaError
from chita.methods import METHODS
from chita.model.accuracy import accuracy
from chita.paper.added_methods import added_methods, source_key
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


GROUPS = (
    Group("mlpnet", 60_000, (0.9, 0.95, 0.98), also_without=(0.9, 0.95, 0.98)),
    Group("resnet20", 50_000, (0.9, 0.95, 0.98), also_without=(0.9,)),
    Group("resnet20", 20_000, (0.9, 0.95, 0.98)),
    Group("resnet20", 20_000, ("2:4", "1:4")),
    Group("resnet20", 1000, (0.7, 0.9)),
    Group("mobilenetv1-folded", 2000, (0.5, 0.7, 0.8), batch=64),
)
# Increase this number when the results of recovery change, so that old cells are computed again.
VERSION = 1
QUICK_GROUPS = (Group("mlpnet", 4000, (0.95, 0.98)),)


@dataclass(frozen=True)
class RecoveryBench:
    """`auto` and its rivals with the same recovery.

    A cell is a network, a number of images, a sparsity and a seed, with the results of all methods:
    those of the rivals depend on the steps of `auto`.

    Attributes:
        groups: what to run; networks without trained weights are left out.
        rivals: the arguments of chita.prune for each rival, by name. Methods that a user has
            registered are rivals with default arguments.
        options: other arguments of `auto`; none in the full size.
    """

    groups: Sequence[Group] = GROUPS
    rivals: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: RIVALS)
    options: Mapping[str, Any] = field(default_factory=dict)

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the cells of one seed after the other, group by group."""
        found = list(self._found(bench))
        if not found:
            names = ", ".join(dict.fromkeys(group.network for group in self.groups))
            raise ChitaError(f"this benchmark needs the trained weights of one of {names}")
        return [
            self._cell(group, subject, sparsity, seed)
            for seed in range(bench.seeds)
            for group, subject in found
            for sparsity in group.sparsities
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

    def _rivals(self) -> dict[str, dict[str, Any]]:
        """Return the arguments of all rivals, those of registered methods last."""
        added = {name: {"method": name} for name in added_methods()}
        return {name: dict(given) for name, given in {**self.rivals, **added}.items()}

    def _cell(self, group: Group, subject: Subject, sparsity: float | str, seed: int) -> Cell:
        rivals = self._rivals()
        sources = {name: source_key(METHODS[name]) for name in added_methods()}
        key = {
            "bench": "recovery",
            "network": subject.name,
            "images": group.images,
            "batch": group.batch,
            "sparsity": sparsity,
            "seed": seed,
            "rivals": rivals,
            "options": dict(self.options),
            "without_recovery": sparsity in group.also_without,
            "recovery_version": VERSION,
            **({"sources": sources} if sources else {}),
        }

        def compute() -> dict[str, Any]:
            batches = calibration(subject, group, seed)
            trial = _Trial(subject, batches, sparsity, seed)
            results = {AUTO: trial.run(**self.options)}
            steps = f"{results[AUTO]['training_steps']} steps"
            others = {
                name: {**arguments, "recover": True, "budget": steps}
                for name, arguments in rivals.items()
            }
            if sparsity in group.also_without:
                others[NO_RECOVERY] = {"recover": False}
            for name, arguments in others.items():
                try:
                    results[name] = trial.run(**arguments)
                except (ChitaError, torch.cuda.OutOfMemoryError) as error:
                    logger.warning("%s on %s at %s: %s", name, subject.name, sparsity, error)
            return {
                "images": sum(len(labels) for _, labels in batches),
                "dense": accuracy(subject.model(seed), subject.test),
                "results": results,
            }

        return Cell(key, compute)

    def report(self, records: Sequence[Record]) -> Report:
        rows = recovery_rows(records)
        return Report(
            title="Recovery: auto and other methods with the same samples and training steps",
            rows=rows,
            text=recovery_text(rows, records),
            draw=lambda figure: draw_recovery(figure, rows),
        )


def calibration(subject: Subject, group: Group, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return the calibration batches in memory, so that seconds do not depend on reading files."""
    images = subject.splits.train.shuffled(seed)
    return list(Batches(images, group.batch, limit=group.images, device=subject.device))


@dataclass(frozen=True)
class _Trial:
    """What all methods of a cell share."""

    subject: Subject
    batches: list[tuple[Tensor, Tensor]]
    sparsity: float | str
    seed: int

    def run(self, **arguments: Any) -> dict[str, Any]:
        """Prune a copy of the network, and return the figures of the method."""
        model, subject = self.subject.model(self.seed), self.subject
        result, seconds = timed_prune(
            model,
            self.batches,
            sparsity=self.sparsity,
            include=subject.network.prunable,
            seed=self.seed,
            **arguments,
        )
        return {
            "accuracy": accuracy(model, subject.test),
            "seconds": seconds,
            "training_steps": result.training_steps,
            "sparsity": result.sparsity,
            "held_out_loss": result.held_out_loss,
            "gains": None if result.gains is None else asdict(result.gains),
            "stages": _stages(result),
        }


def _stages(result: PruneResult) -> list[dict[str, Any]]:
    """Return what each stage chose, and its losses on held-out samples."""
    kept = ("sparsity", "metric", "step", "ridge", "mask_loss", "solved_loss", "choice_loss")
    rows = (row.to_dict() for row in result.stages)
    return [{name: row[name] for name in (*kept, "recovery_steps")} for row in rows]
