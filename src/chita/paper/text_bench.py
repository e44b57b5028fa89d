"""A benchmark of networks that read text: cells of all methods, sparsities and seeds."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.methods import METHODS, method_names
from chita.paper.added_methods import added_methods, source_key
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.method_tables import DENSE
from chita.paper.settings import recovery_key
from chita.paper.timed_prune import timed_prune
from chita.paper.write import Report

logger = logging.getLogger(__name__)


class TextNetwork(Protocol):
    """A trained network and its texts.

    Attributes:
        name: the name in keys and tables.
        place: the device of the network.
    """

    name: str
    place: torch.device

    def build(self) -> nn.Module:
        """Return a new model with the trained weights."""
        ...  # pragma: no cover

    def calibration(self, model: nn.Module, seed: int) -> list[dict[str, Tensor]]:
        """Return batches to calibrate on."""
        ...  # pragma: no cover

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """Return the figures of a model on the test text."""
        ...  # pragma: no cover


Open = Callable[[Path | None, torch.device, Path], TextNetwork]


@dataclass(frozen=True)
class TextBench(ABC):
    """Pruned networks by figures that they measure on a text.

    A cell is a network, a method, a sparsity and a seed. Methods that are not registered are left
    out.

    Attributes:
        name: the name of the benchmark.
        version: a number that is increased when the results of pruning change, so that old cells
            are computed again.
        models: open the networks, given the folder of texts, the device and the output folder. A
            network that cannot be opened is left out.
        sparsities: the sparsities and patterns.
        contenders: the arguments of chita.prune for each method, by name. Methods that a user has
            registered are added with default arguments.
        options: further arguments by name, such as a budget.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    models: Sequence[Open]
    sparsities: Sequence[float | str]
    contenders: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @abstractmethod
    def report(self, records: Sequence[Record]) -> Report:
        """Return the table and the figure of the cells computed so far."""

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the dense network first, then the cells of one method after the other."""
        methods: dict[str, dict[str, Any]] = {DENSE: {}, **self._methods()}
        return [
            self._cell(model, name, arguments, sparsity, seed)
            for model in self._opened(bench)
            for name, arguments in methods.items()
            for sparsity in (self.sparsities if name != DENSE else (0.0,))
            for seed in range(bench.seeds if name != DENSE else 1)
        ]

    def _opened(self, bench: Bench) -> list[TextNetwork]:
        found: list[TextNetwork] = []
        failure: ChitaError | None = None
        for open_model in self.models:
            try:
                found.append(open_model(bench.texts, bench.device, bench.folder))
            except ChitaError as error:
                logger.warning("a network is left out: %s", error)
                failure = error
        if failure is not None and not found:
            raise failure
        return found

    def _methods(self) -> dict[str, dict[str, Any]]:
        """Return the arguments of all methods that are registered."""
        known = method_names()
        given = {**self.contenders, **{name: {"method": name} for name in added_methods()}}
        return {
            name: {**arguments, **self.options.get(name, {})}
            for name, arguments in given.items()
            if arguments["method"] in known
        }

    def _cell(
        self,
        model: TextNetwork,
        name: str,
        arguments: Mapping[str, Any],
        sparsity: float | str,
        seed: int,
    ) -> Cell:
        method = METHODS.get(arguments.get("method", ""))
        key = {
            "bench": self.name,
            "network": model.name,
            "method": name,
            "arguments": dict(arguments),
            "sparsity": sparsity,
            "seed": seed,
            f"{self.name}_version": self.version,
            **({} if method is None else source_key(method)),
            **recovery_key(arguments),
        }
        return Cell(key, partial(_measure, model, dict(arguments), sparsity, seed))


def _measure(
    subject: TextNetwork, arguments: Mapping[str, Any], sparsity: float | str, seed: int
) -> dict[str, Any]:
    """Prune a copy of a network, unless there are no arguments, and measure it."""
    model = subject.build()
    figures: dict[str, Any] = {"seconds": None, "peak_memory_bytes": None, "reached": 0.0}
    if arguments:
        batches = subject.calibration(model, seed)
        if subject.place.type == "cuda":
            torch.cuda.reset_peak_memory_stats(subject.place)
        result, seconds = timed_prune(model, batches, sparsity=sparsity, seed=seed, **arguments)
        figures = {
            "seconds": seconds,
            "peak_memory_bytes": result.peak_memory_bytes,
            "reached": result.sparsity,
        }
    return {**subject.measure(model), **figures}
