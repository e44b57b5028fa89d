"""The methods compared on the same A: all single-stage methods, and two as published."""

from __future__ import annotations

from dataclasses import dataclass

from chita.curvature.fisher import Fisher
from chita.methods import METHODS, Method
from chita.methods.m_fac import RowByRow
from chita.methods.surgeon import Surgeon
from chita.methods.woodfisher import Woodbury, woodbury_memory
from chita.paper.added_methods import added_methods
from chita.paper.settings import TAYLOR, takes_too_long
from chita.report import published as paper

BLOCKS = 2000  # block size of an explicit inverse; in full, MLPNet's takes 4.2 GB, ResNet20's 288


@dataclass(frozen=True)
class Contender:
    """A method with its name in a table and its block size."""

    name: str
    method: Method
    block_size: int | None = None


def contenders(network: str, *, quick: bool = False) -> list[Contender]:
    """Return the single-stage methods that are feasible on a network, with the paper's names.

    Methods that a user has registered follow, with their own names.
    """
    names = {**paper.NAMES, **{name: name for name in added_methods()}}
    return [
        Contender(
            name=shown,
            method=METHODS[name],
            block_size=BLOCKS if METHODS[name].memory is woodbury_memory else None,
        )
        for name, shown in names.items()
        if METHODS[name].stages == 1
        and name != TAYLOR  # equals WoodFisher without the first-order term
        and not takes_too_long(network, name, quick)
    ]


def as_published() -> list[Contender]:
    """Return M-FAC and WoodFisher with row-by-row recursions, as in their papers."""
    recursion = Method("m-fac as published", Fisher, Surgeon(RowByRow))
    explicit = Method(
        "woodfisher as published", Fisher, Surgeon(Woodbury(at_once=1)), memory=woodbury_memory
    )
    return [
        Contender("M-FAC as published", recursion),
        Contender("WF as published", explicit, BLOCKS),
    ]
