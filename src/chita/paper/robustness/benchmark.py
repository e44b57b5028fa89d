"""Robustness: `method="auto"` against common methods on many kinds of networks.

On each network, the test loss of `method="auto"` should be at most that of the best of magnitude,
OBD and plain CHITA, its accuracy at most 0.3 points below that of the best method with the same
recovery and budget, and rescaling neighbouring layers should hardly change its accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from chita.model.accuracy import accuracy
from chita.model.losses import mean_loss
from chita.paper.added_methods import added_methods
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.method_tables import DENSE
from chita.paper.robustness.layout import (
    CANDIDATE,
    draw_robustness,
    robustness_rows,
    robustness_text,
)
from chita.paper.robustness.specimens import Specimen, find_specimens
from chita.paper.settings import recovery_key, version_key
from chita.paper.timed_prune import timed_prune
from chita.paper.write import Report

CONTENDERS: dict[str, dict[str, Any]] = {  # arguments of chita.prune, by the name in the tables
    "magnitude": {"method": "magnitude"},
    "OBD": {"method": "obd", "batch": 1},
    "OBD, lambda = 0": {"method": "obd", "batch": 1, "ridge": 0.0},
    "CHITA": {"method": "chita-bso", "batch": 1, "first_order": False},
    "CHITA++": {"method": "chita++"},
    "magnitude, recovery": {"method": "magnitude", "recover": True},
    "LAMP, recovery": {"method": "lamp", "recover": True},
    "OBD, recovery": {"method": "obd", "batch": 1, "recover": True},
    "CHITA, recovery": {"method": "chita-bso", "batch": 1, "first_order": False, "recover": True},
    CANDIDATE: {"method": "auto"},
}
QUICK_NETWORKS = ("mlpnet-embedded", "mlpnet-embedded-rescaled", "signals")


@dataclass(frozen=True)
class Robustness:
    """All contenders on all networks.

    Attributes:
        networks: the names of the networks to run; None for all.
        contenders: the arguments of chita.prune for each contender, by name. Methods that a user
            has registered are contenders with default arguments, without and with recovery.
        samples: n, the rows of A; None for the default of chita.prune.
    """

    networks: Sequence[str] | None = None
    contenders: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: CONTENDERS)
    samples: int | None = None

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the cells of one seed after the other, network by network."""
        found = find_specimens(bench.subjects)
        specimens = [found[name] for name in self.networks or found]
        return [
            cell
            for seed in range(bench.seeds)
            for specimen in specimens
            for cell in self._cells_of(specimen, seed)
        ]

    def _cells_of(self, specimen: Specimen, seed: int) -> Iterator[Cell]:
        """Yield the cell of the dense network, then those of each contender."""
        yield _cell(specimen, seed, DENSE, sparsity=0.0)
        contenders = {**self.contenders, **_added_contenders()}
        for sparsity, name in product(specimen.sparsities, contenders):
            arguments = {**specimen.settings, "samples": self.samples, **contenders[name]}
            yield _cell(specimen, seed, name, sparsity, **arguments)

    def report(self, records: Sequence[Record]) -> Report:
        rows = robustness_rows(records)
        return Report(
            title="Different kinds of networks: held-out loss after one-shot pruning",
            rows=rows,
            text=robustness_text(rows),
            draw=lambda figure: draw_robustness(figure, rows),
        )


def _added_contenders() -> dict[str, dict[str, Any]]:
    """Return the arguments of the methods that a user has registered."""
    named = added_methods()
    without = {name: {"method": name} for name in named}
    return {**without, **{f"{n}, recovery": {"method": n, "recover": True} for n in named}}


def _cell(specimen: Specimen, seed: int, contender: str, sparsity: float, **arguments: Any) -> Cell:
    key = {
        "bench": "any",
        "network": specimen.name,
        "contender": contender,
        "sparsity": sparsity,
        "seed": seed,
        **arguments,
        **version_key(arguments.get("method", "")),
        **recovery_key(arguments),
    }

    def compute() -> dict[str, Any]:
        model, seconds, steps = specimen.model(seed), 0.0, 0
        if contender != DENSE:
            result, seconds = timed_prune(
                model,
                specimen.calibration(seed),
                sparsity=sparsity,
                include=specimen.include,
                seed=seed,
                **arguments,
            )
            steps = result.training_steps
        test = specimen.test()
        return {
            "loss": mean_loss(model, test),
            "accuracy": accuracy(model, test),
            "seconds": seconds,
            "training_steps": steps,
            "rescaled_from": specimen.rescaled_from,
        }

    return Cell(key, compute)
