"""Who competes on one and the same A: every single-stage method, and two rivals as published."""

from __future__ import annotations

from dataclasses import dataclass

from chita.curvature.fisher import Fisher
from chita.methods import METHODS, Method
from chita.methods.m_fac import RowByRow
from chita.methods.surgeon import Surgeon
from chita.methods.woodfisher import Woodbury, woodbury_memory
from chita.paper.settings import TAYLOR, takes_too_long
from chita.report import published as paper

BLOCKS = 2000  # of an explicit inverse: all of MLPNet's would take 4.2 GB, all of ResNet20's 288


@dataclass(frozen=True)
class Contender:
    """A method under the name it has in a table, and the blocks it is run in."""

    name: str
    method: Method
    block_size: int | None = None


def contenders(network: str, *, quick: bool = False) -> list[Contender]:
    """The methods that can be run on that network in one stage, by the names of the paper."""
    return [
        Contender(
            name=shown,
            method=METHODS[name],
            block_size=BLOCKS if METHODS[name].memory is woodbury_memory else None,
        )
        for name, shown in paper.NAMES.items()
        if METHODS[name].stages == 1
        and name != TAYLOR  # without the first-order term, as here, it is WoodFisher
        and not takes_too_long(network, name, quick)
    ]


def as_published() -> list[Contender]:
    """M-FAC's and WoodFisher's recursions, row by row, as their papers have them."""
    recursion = Method("m-fac as published", Fisher, Surgeon(RowByRow))
    explicit = Method(
        "woodfisher as published", Fisher, Surgeon(Woodbury(at_once=1)), memory=woodbury_memory
    )
    return [
        Contender("M-FAC as published", recursion),
        Contender("WF as published", explicit, BLOCKS),
    ]
