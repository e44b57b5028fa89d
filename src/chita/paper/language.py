"""Language models: the perplexity that each method leaves, with its time and its memory.

All methods get the same 128 sequences. Those that are not registered are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from chita.deploy.timing import timed
from chita.errors import ChitaError
from chita.methods import METHODS, method_names
from chita.model.language import measure_perplexity
from chita.paper.added_methods import added_methods, source_key
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.language_layout import DENSE, draw_language, language_rows, language_text
from chita.paper.language_models import LanguageModel, smollm, stories
from chita.paper.write import Report
from chita.pruning.prune import prune

logger = logging.getLogger(__name__)

# Arguments of chita.prune by the name in the tables. As in the papers of the rivals, magnitude
# prunes the same share of each layer.
CONTENDERS: dict[str, dict[str, Any]] = {
    "magnitude": {"method": "magnitude-uniform"},
    "Wanda": {"method": "wanda"},
    "SparseGPT": {"method": "sparsegpt"},
    "RIA": {"method": "ria"},
    "ALPS": {"method": "alps"},
    "L-OBS": {"method": "l-obs", "stages": 1},
    "CHITA, layer-wise": {"method": "chita-layer"},
    "CHITA, layer-wise, recovery": {"method": "chita-layer", "recover": True},
    "CHITA, both": {"method": "chita-both"},
    "auto": {"method": "auto"},
}
SPARSITIES: tuple[float | str, ...] = (0.5, 0.6, 0.7, "2:4", "4:8")
# Increase this number when the results of pruning change, so that old cells are computed again.
VERSION = 2

Open = Callable[[Path | None, torch.device, Path], LanguageModel]


@dataclass(frozen=True)
class LanguageBench:
    """Pruned language models by their perplexity.

    A cell is a network, a method, a sparsity and a seed.

    Attributes:
        models: open the models, given the folder of texts, the device and the output folder. A
            model that cannot be opened is left out.
        sparsities: the sparsities and patterns.
        contenders: the arguments of chita.prune for each method, by name. Methods that a user has
            registered are added with default arguments.
        options: further arguments by name, such as a budget.
    """

    models: Sequence[Open] = (smollm, stories)
    sparsities: Sequence[float | str] = SPARSITIES
    contenders: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: CONTENDERS)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

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

    def _opened(self, bench: Bench) -> list[LanguageModel]:
        found: list[LanguageModel] = []
        failure: ChitaError | None = None
        for open_model in self.models:
            try:
                found.append(open_model(bench.texts, bench.device, bench.folder))
            except ChitaError as error:
                logger.warning("a language model is left out: %s", error)
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
        model: LanguageModel,
        name: str,
        arguments: Mapping[str, Any],
        sparsity: float | str,
        seed: int,
    ) -> Cell:
        method = METHODS.get(arguments.get("method", ""))
        key = {
            "bench": "language",
            "network": model.name,
            "method": name,
            "arguments": dict(arguments),
            "sparsity": sparsity,
            "seed": seed,
            "language_version": VERSION,
            **({} if method is None else source_key(method)),
        }
        compute = partial(_measure, model, dict(arguments), sparsity, seed)
        return Cell(key, compute)

    def report(self, records: Sequence[Record]) -> Report:
        rows = language_rows(records)
        return Report(
            title="Language models: perplexity after pruning",
            rows=rows,
            text=language_text(rows),
            draw=lambda figure: draw_language(figure, rows),
        )


def _measure(
    subject: LanguageModel, arguments: Mapping[str, Any], sparsity: float | str, seed: int
) -> dict[str, Any]:
    """Prune a copy of a model, unless there are no arguments, and measure its perplexity."""
    model = subject.build()
    figures: dict[str, Any] = {"seconds": None, "peak_memory_bytes": None, "reached": 0.0}
    if arguments:
        batches = subject.calibration(model, seed)
        if subject.place.type == "cuda":
            torch.cuda.reset_peak_memory_stats(subject.place)
        work = partial(
            prune, model, batches, sparsity=sparsity, seed=seed, progress=False, **arguments
        )
        result, seconds = timed(work, subject.place)
        figures = {
            "seconds": seconds,
            "peak_memory_bytes": result.peak_memory_bytes,
            "reached": result.sparsity,
        }
    found = measure_perplexity(model, subject.test(model))
    return {"perplexity": found.perplexity, "tokens": found.tokens, **figures}
