"""The registry of the methods that train a sparse network."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from chita.errors import ChitaError
from chita.gradual.pruner import GradualPruner
from chita.gradual.rivals.dense import DenseTraining
from chita.gradual.rivals.dnw import DNW
from chita.gradual.rivals.gmp import GMP
from chita.gradual.rivals.incremental import Incremental
from chita.gradual.rivals.rigl import RigL
from chita.gradual.rivals.snfs import SNFS
from chita.gradual.rivals.soft_threshold import SoftThreshold
from chita.gradual.rivals.variational_dropout import VariationalDropout
from chita.gradual.sparsifier import Sparsifier, TrainingPlan
from chita.model.weights import Patterns


@dataclass(frozen=True)
class GradualMethod:
    """A method that trains a sparse network.

    Attributes:
        title: the name in the paper's tables.
        build: creates the sparsifier from the model, the optimizer, the training plan, the keyword
            include and the settings of the method.
        from_scratch: whether training starts from random weights instead of trained ones.
    """

    title: str
    build: Callable[..., Sparsifier]
    from_scratch: bool = False


def _pruner(method: str, **defaults: Any) -> Callable[..., Sparsifier]:
    """Return a function that builds a GradualPruner with a method of `chita.prune`."""

    def build(
        model: nn.Module,
        optimizer: Optimizer,
        plan: TrainingPlan,
        *,
        include: Patterns = None,
        **settings: Any,
    ) -> Sparsifier:
        arguments = {"seed": plan.seed, "include": include, **defaults, **settings}
        return GradualPruner(model, optimizer, plan.schedule, method=method, **arguments)

    return build


METHODS: dict[str, GradualMethod] = {
    "chita-bso": GradualMethod("CHITA", _pruner("chita-bso")),
    "chita++": GradualMethod("CHITA++", _pruner("chita++", stages=10)),
    "global-magnitude": GradualMethod("Global Magnitude", _pruner("magnitude")),
    "woodfisher": GradualMethod("WoodFisher", _pruner("woodfisher", block_size=2000)),
    "m-fac": GradualMethod("M-FAC", _pruner("m-fac", block_size=2000)),
    "incremental": GradualMethod("Incremental", Incremental),
    "gmp": GradualMethod("GMP", GMP),
    "str": GradualMethod("STR", SoftThreshold),
    "variational-dropout": GradualMethod("Variational Dropout", VariationalDropout),
    "rigl": GradualMethod("RigL + ERK", RigL, from_scratch=True),
    "snfs": GradualMethod("SNFS", SNFS, from_scratch=True),
    "dnw": GradualMethod("DNW", DNW, from_scratch=True),
}
# The reference: a training of the same length from random weights, without pruning.
REFERENCES: dict[str, GradualMethod] = {
    "dense": GradualMethod("Dense, same epochs", DenseTraining, from_scratch=True),
}


def get_method(name: str) -> GradualMethod:
    """Return the method or reference with a name."""
    known = METHODS | REFERENCES
    if name not in known:
        raise ChitaError(f"method must be one of {', '.join(known)}, got {name!r}")
    return known[name]


def make_sparsifier(
    name: str,
    model: nn.Module,
    optimizer: Optimizer,
    plan: TrainingPlan,
    *,
    include: Patterns = None,
    **settings: Any,
) -> Sparsifier:
    """Create the sparsifier of a method for a training plan.

    Args:
        name: in METHODS or REFERENCES.
        model: the model to train.
        optimizer: its optimizer; add the sparsifier's parameter groups to it afterwards.
        plan: the training plan.
        include: glob pattern(s) of the prunable parameters.
        settings: settings of the method; arguments of `chita.prune` for methods that call it.
    """
    build = get_method(name).build
    try:
        inspect.signature(build).bind(model, optimizer, plan, include=include, **settings)
    except TypeError as error:
        takes = ", ".join(list(inspect.signature(build).parameters)[4:]) or "none"
        raise ChitaError(f"settings of {name}: {error}; it takes {takes}") from error
    return build(model, optimizer, plan, include=include, **settings)
