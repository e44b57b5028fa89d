"""The options of the solver, with the paper's names, and the record of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any, Literal, get_args

from chita.errors import ChitaError, is_finite, is_number

Refinement = Literal["cd", "bso"]
Step = Literal["paper", "lipschitz", "backtracking"]


@dataclass(frozen=True)
class Options:
    """Options of the algorithms of section 3.2.

    Attributes:
        iterations: the most IHT updates in total (the paper's grid is from 5 to 500).
        t_ht: IHT updates in a cycle of algorithm 3.
        t_cd: sweeps of coordinate descent in a cycle of algorithm 3.
        gamma: the growth factor of the step size in algorithm 2.
        active: the size of the initial active set as a multiple of k; 0 for no active set. Blocks
            that are solved in batches have none.
        inner: the refinement within a cycle of algorithm 4, coordinate descent or backsolve.
        tol: the relative decrease of the objective below which a cycle counts as converged.
        step: the step size: that of the paper, 1/L, or backtracking.
        continuation: the number of shrinking supports before the first one; 0 starts at P_k(w0).
        block_sweeps: the most sweeps in which blocks, after their independent solution, take turns
            on the global problem, each a pass over A; 0 keeps them independent, as in the paper.
        seed: the random seed.
    """

    iterations: int = 50
    t_ht: int = 5
    t_cd: int = 10
    gamma: float = 1.5
    active: float = 2.0
    inner: Refinement = "cd"
    tol: float = 1e-4
    step: Step = "paper"
    continuation: int = 0
    block_sweeps: int = 0
    seed: int = 0

    @classmethod
    def named(cls, given: Mapping[str, Any]) -> Options:
        """Build options from keyword arguments of `chita.solve`."""
        known = [option.name for option in fields(cls)]
        for name in given:
            if name not in known:
                raise ChitaError(f"{name!r} is not an option of solve; the options are {known}")
        return cls(**given)

    def __post_init__(self) -> None:
        least_of = {"iterations": 0, "t_ht": 1, "t_cd": 0, "continuation": 0}
        least_of |= {"block_sweeps": 0, "seed": 0}
        for name, least in least_of.items():
            value = getattr(self, name)
            if not (isinstance(value, Integral) and int(value) >= least):
                raise ChitaError(f"{name} must be an integer of at least {least}, got {value!r}")
        for name in ("gamma", "active", "tol"):
            value = getattr(self, name)
            if not (is_number(value) and is_finite(value)):
                raise ChitaError(f"{name} must be a finite number, got {value!r}")
        if not self.gamma > 1:
            raise ChitaError(f"gamma must be greater than 1, got {self.gamma!r}")
        if not (self.active >= 1 or self.active == 0):
            raise ChitaError(
                f"active must be at least 1 (times k), or 0 for no active set, got {self.active!r}"
            )
        if not 0 <= self.tol < 1:
            raise ChitaError(f"tol must be in [0, 1), got {self.tol!r}")
        for name, choices in (("inner", get_args(Refinement)), ("step", get_args(Step))):
            if getattr(self, name) not in choices:
                raise ChitaError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")


@dataclass
class Trace:
    """The record of a run: the objective after each iteration, and the iterations used."""

    limit: int
    history: list[float] = field(default_factory=list)
    iterations: int = 0
    jitter: float = 0.0

    @property
    def spent(self) -> bool:
        return self.iterations >= self.limit
