"""What a pruning method is: three choices, and how many stages it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from chita.solver.algorithm import Algorithm, Layout
from chita.solver.options import Options

Curvature = Literal["none", "fisher", "inputs"]


def _little(layout: Layout, n: int) -> int:
    return 0


@dataclass(frozen=True)
class Method:
    """A pruning system of the paper.

    Attributes:
        name: as `chita.prune(method=...)` takes it.
        curvature: where A comes from: "fisher" for gradients, "inputs" for what each layer takes
            in, "none" for a method that needs no A.
        algorithm: the support rule (which weights stay) and the update (what they become).
        stages: how many stages it takes by default.
        options: how its algorithm runs by default.
        streams: its solver reads A piece by piece, so that it may be spilled or shared.
        drops_dead: it removes the weights of dead columns first by default (`l0/dead.py`).
        constrained: its supports keep to limits and patterns (`l0/constraint.py`).
        memory: (layout, n) -> the bytes it needs beside A, where these are many; float32 assumed.
    """

    name: str
    curvature: Curvature
    algorithm: Algorithm
    stages: int = 1
    options: Options = field(default_factory=Options)
    streams: bool = False
    drops_dead: bool = False
    constrained: bool = True
    memory: Callable[[Layout, int], int] = _little
