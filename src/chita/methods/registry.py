"""Method, and the registry that `chita.prune(method=...)` looks names up in."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from chita.curvature.source import CurvatureSource
from chita.errors import ChitaError, closest, require
from chita.solver.algorithm import Algorithm, Layout
from chita.solver.options import Options

logger = logging.getLogger(__name__)

RUN = "run(problem, k, layout, options, trace)"  # see Algorithm
ENTRY_POINTS = "chita.methods"  # the group in which a package declares its methods


def _no_memory(layout: Layout, n: int) -> int:
    return 0


@dataclass(frozen=True)
class Method:
    """A pruning method: a curvature source, an algorithm, and their defaults.

    Attributes:
        name: the value of `chita.prune(method=...)`.
        curvature: the class of the curvature source, such as `Fisher` or `NoCurvature`.
        algorithm: selects the weights to keep and updates them.
        stages: the default number of stages.
        options: the default options of the algorithm.
        streams: whether the algorithm reads A in pieces, so that A can be stored in a file,
            recomputed, or shared by several ranks.
        drops_dead: whether the weights of dead columns are removed first by default
            (`solver/dead_columns.py`).
        ridge: the lambda of `ridge="auto"`: None to choose it by the loss on held-out samples, 0 if
            the method has no ridge.
        constrained: whether the supports satisfy limits and patterns (`solver/constraints/`).
        memory: (layout, n) -> the bytes that the algorithm allocates besides A, for float32.
        solvers: the same method with other solvers inside, by the value of `solver=`.
    """

    name: str
    curvature: type[CurvatureSource]
    algorithm: Algorithm
    stages: int = 1
    options: Options = field(default_factory=Options)
    streams: bool = False
    drops_dead: bool = False
    ridge: float | None = None
    constrained: bool = True
    memory: Callable[[Layout, int], int] = _no_memory
    solvers: Mapping[str, Method] = field(default_factory=dict, compare=False)

    @property
    def takes_ridge(self) -> bool:
        """Whether the method has a ridge lambda: without samples there is nothing to regularise."""
        return self.curvature.reads_samples and self.ridge != 0

    @property
    def adds_inputs(self) -> bool:
        """Whether the curvature adds the inputs of layers to gradients, in a share to choose."""
        return self.curvature.uses_gradients and self.curvature.by_block

    @property
    def measures_weights(self) -> bool:
        """Whether gradients measure all weights at once: metrics and dead columns need them."""
        return self.curvature.uses_gradients and not self.curvature.by_block

    @property
    def shares_columns(self) -> bool:
        """Whether ranks can share the columns of A, and blocks of them can be coupled."""
        return self.streams and self.measures_weights


METHODS: dict[str, Method] = {}


def register_method(method: Method) -> Method:
    """Make a method available under its name.

    `chita.prune(method=name)`, `chita prune --method name` and the comparisons of `chita bench`
    (table1, recovery, robustness, objective, runtime) use it from then on.

    Args:
        method: the method.

    Returns:
        The method, so that the call can be part of an assignment.

    Raises:
        ChitaError: The name is taken, or `method` is not a valid `Method`.
    """
    require("method", method, lambda given: isinstance(given, Method), "a chita.Method")
    require("name", method.name, _is_name, "a non-empty string")
    require("curvature", method.curvature, _is_source, "a subclass of CurvatureSource")
    require("algorithm", method.algorithm, _is_algorithm, f"an object with a method {RUN}")
    require("options", method.options, lambda given: isinstance(given, Options), "a chita.Options")
    if method.name in METHODS:
        raise ChitaError(f"method {method.name!r} is already registered")
    METHODS[method.name] = method
    return method


def get_method(name: str, solver: str | None = None) -> Method:
    """Return the method with this name.

    Args:
        name: the name of a registered method, or of one that an installed package declares.
        solver: the single-stage solver inside the method, for methods that have several.

    Raises:
        ChitaError: The name or the solver is unknown.
    """
    if not isinstance(name, str) or (name not in METHODS and name not in method_names()):
        names = sorted(method_names())
        near = closest(name, names) if isinstance(name, str) else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise ChitaError(f"method must be one of {names}, got {name!r}{hint}")
    method = METHODS[name]
    if solver is None:
        return method
    if not method.solvers:
        able = methods_where(lambda each: bool(each.solvers))
        raise ChitaError(f"solver={solver!r} applies to {able} only, got method={name!r}")
    if not isinstance(solver, str) or solver not in method.solvers:
        raise ChitaError(f"solver must be one of {sorted(method.solvers)}, got {solver!r}")
    return method.solvers[solver]


def method_names() -> list[str]:
    """Return all names in the order of registration, with those of installed packages."""
    _load_entry_points()
    return list(METHODS)


def methods_where(holds: Callable[[Method], bool]) -> str:
    """Return the names of the methods for which `holds` is true, as text for a message."""
    return ", ".join(sorted(name for name in method_names() if holds(METHODS[name])))


@cache
def _load_entry_points() -> None:
    """Register the methods that installed packages declare; once in a process.

    A package that fails to load is reported and skipped: it must not break other methods.
    """
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            _load(entry)
        except Exception as error:
            logger.warning("entry point %s of %s failed: %s", entry.name, ENTRY_POINTS, error)


def _load(entry: EntryPoint) -> None:
    method = entry.load()
    registered = isinstance(method, Method) and METHODS.get(method.name) is method
    if not registered:  # the module may have called register_method when it was imported
        register_method(method)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_algorithm(value: Any) -> bool:
    """Return whether a value is an object, not a class, whose `run` takes the five arguments."""
    run = getattr(value, "run", None)
    if isinstance(value, type) or not callable(run):
        return False
    try:
        inspect.signature(run).bind(*range(5))
    except TypeError:
        return False
    return True


def _is_source(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, CurvatureSource)
