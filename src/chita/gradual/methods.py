"""The registry: every way to train a sparse network, by the name that users call it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from chita.errors import ChitaError
from chita.gradual.pruner import GradualPruner
from chita.gradual.rivals.dense import Dense
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
    """A way to train a sparse network.

    Attributes:
        title: as the paper's tables write it.
        build: makes its sparsifier from the model, the optimizer, the plan of the training, the
            keyword include and settings of its own.
        from_scratch: whether it starts from fresh weights and not from trained ones.
    """

    title: str
    build: Callable[..., Sparsifier]
    from_scratch: bool = False


def _pruner(method: str, **defaults: Any) -> Callable[..., Sparsifier]:
    """The gradual pruner with a method of `chita.prune`."""

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
# What the methods are compared with: trained from fresh weights for as long, without pruning.
REFERENCES: dict[str, GradualMethod] = {
    "dense": GradualMethod("Dense, same epochs", Dense, from_scratch=True),
}


def get_method(name: str) -> GradualMethod:
    """The method or the reference of that name."""
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
    """The sparsifier of a method, for a training that is planned.

    Args:
        name: in METHODS or REFERENCES.
        model: whose weights are trained.
        optimizer: that trains them; it must still take in the sparsifier's groups.
        plan: of the training.
        include: glob pattern(s) of the prunable parameters.
        settings: of the method: arguments of `chita.prune` for those that go through it.
    """
    build = get_method(name).build
    try:
        inspect.signature(build).bind(model, optimizer, plan, include=include, **settings)
    except TypeError as error:
        takes = ", ".join(list(inspect.signature(build).parameters)[4:]) or "none"
        raise ChitaError(f"settings of {name}: {error}; it takes {takes}") from error
    return build(model, optimizer, plan, include=include, **settings)
