"""PruneConfig: everything that decides how a network is pruned, checked before any work starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

from chita.allocation import GLOBAL, RULES
from chita.errors import ChitaError
from chita.methods import METHODS, Method, get_method
from chita.metric import METRICS
from chita.pattern import NM, Pattern, parse_pattern
from chita.schedule import sparsities
from chita.sizes import parse_bytes

Ridge = float | Literal["auto"]

SCHEDULE = "polynomial"
LOSSES = (None, "distill", "distill-mse")  # beside functions, which are no data
STORAGE = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class PruneConfig:
    """The arguments of `chita.prune` that are data; see there for what they mean."""

    sparsity: float
    loss: str | None = None
    method: str = "chita++"
    solver: str | None = None
    samples: int | None = None
    batch: int = 16
    ridge: Ridge = "auto"
    first_order: bool = True
    stages: int | None = None
    schedule: str | None = None
    start: float = 0.2
    hold: float = 0.0
    iterations: int | None = None
    continuation: int = 0
    block_size: int | None = None
    metric: str = "plain"
    pattern: str | None = None
    strict: bool = False
    include: Sequence[str] | str | None = None
    exclude: Sequence[str] | str | None = None
    allocation: str | Mapping[str, float] = GLOBAL
    at_least: Mapping[str, float] | None = None
    at_most: Mapping[str, float] | None = None
    seed: int = 0
    memory: int | str | None = None
    storage: str = "float32"

    def __post_init__(self) -> None:
        _require("sparsity", self.sparsity, _is_share, "a number in [0, 1)")
        _require("batch", self.batch, _is_count, "an integer of at least 1")
        for name in ("samples", "stages", "block_size"):
            value = getattr(self, name)
            if value is not None:
                _require(name, value, _is_count, "an integer of at least 1")
        if self.iterations is not None:
            _require("iterations", self.iterations, _is_natural, "an integer of at least 0")
        _require("continuation", self.continuation, _is_natural, "an integer of at least 0")
        _require("seed", self.seed, _is_seed, "an integer from 0 to 2**64 - 1")
        _require("start", self.start, _is_share, "a number in [0, 1)")
        _require("hold", self.hold, _is_share, "a number in [0, 1)")
        for name in ("include", "exclude"):
            what = "a glob pattern of parameter names, or several"
            _require(name, getattr(self, name), _are_patterns, what)
        what = f"a function of outputs and targets, or one of {list(LOSSES[1:])}"
        _require("loss", self.loss, LOSSES.__contains__, what)
        _require("metric", self.metric, METRICS.__contains__, f"one of {list(METRICS)}")
        _require("storage", self.storage, STORAGE.__contains__, f"one of {list(STORAGE)}")
        _require("ridge", self.ridge, _is_ridge, "'auto' or a finite number of at least 0")
        self._check_allocation()
        if self.pattern is not None:
            self._check_pattern(parse_pattern(self.pattern))
        self._make_plain()
        self.resolve_method()
        self.plan()
        if self.memory is not None:
            parse_bytes("memory", self.memory)

    def _check_allocation(self) -> None:
        what = "a dict of glob patterns of parameter names to sparsities in [0, 1)"
        if isinstance(self.allocation, str):
            _require("allocation", self.allocation, RULES.__contains__, f"one of {list(RULES)}")
        else:
            _require("allocation", self.allocation, _are_shares, f"one of {list(RULES)}, or {what}")
        for name in ("at_least", "at_most"):
            _require(name, getattr(self, name) or {}, _are_shares, what)
        limited = self.allocation != GLOBAL or self.at_least or self.at_most
        if limited and not self.resolve_method().constrained:
            raise ChitaError(
                f"method {self.method!r} cannot keep to allocation, at_least or at_most; 'chita++' "
                "and most others can"
            )

    def _make_plain(self) -> None:
        """Numbers as Python has them: those of NumPy are no good for JSON or a generator."""
        for name, value in vars(self).items():
            if isinstance(value, Integral) and not isinstance(value, bool):
                object.__setattr__(self, name, int(value))
            elif isinstance(value, Real) and not isinstance(value, bool):
                object.__setattr__(self, name, float(value))
            elif isinstance(value, Mapping):
                object.__setattr__(self, name, {key: float(value[key]) for key in value})

    def _check_pattern(self, pattern: Pattern) -> None:
        if self.allocation != GLOBAL or self.at_least or self.at_most:
            raise ChitaError(
                f"pattern={self.pattern!r} says what each layer keeps: allocation, at_least and "
                "at_most do not go with it; keep layers dense by exclude"
            )
        if isinstance(pattern, NM) and self.sparsity > pattern.sparsity:
            raise ChitaError(
                f"sparsity must be at most {pattern.sparsity:.4g} for pattern={self.pattern!r}, "
                f"got {self.sparsity!r}"
            )
        if not self.resolve_method().constrained:
            able = sorted(name for name, method in METHODS.items() if method.constrained)
            raise ChitaError(
                f"method {self.method!r} knows no patterns, got pattern={self.pattern!r}; "
                f"{', '.join(able)} do"
            )

    def resolve_method(self) -> Method:
        """The method that the configuration names."""
        return get_method(self.method, self.solver)

    @property
    def budget(self) -> int | None:
        """`memory` in bytes."""
        return None if self.memory is None else parse_bytes("memory", self.memory)

    def plan(self) -> list[float]:
        """The sparsity of each stage."""
        return sparsities(
            self.schedule or SCHEDULE,
            float(self.sparsity),
            stages=self.stages or self.resolve_method().stages,
            start=self.start,
            hold=self.hold,
        )


def kept_weights(p: int, sparsity: float) -> int:
    """k = floor((1 - sparsity) p) as floating point has it: 1 - 0.9 is a hair less than a tenth.

    So the paper counts, to the weight: its figures for magnitude pruning come out to the digit.
    """
    return math.floor((1 - sparsity) * p)


def _require(name: str, value: Any, holds: Callable[[Any], bool], what: str) -> None:
    if not holds(value):
        raise ChitaError(f"{name} must be {what}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value < 1


def _is_natural(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def _is_seed(value: Any) -> bool:
    return _is_natural(value) and value < 2**64


def _is_count(value: Any) -> bool:
    return _is_natural(value) and value >= 1


def _are_patterns(value: Any) -> bool:
    several = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str) or several


def _are_shares(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(pattern, str) and _is_share(share) for pattern, share in value.items()
    )


def _is_ridge(value: Any) -> bool:
    return (isinstance(value, str) and value == "auto") or (
        _is_number(value) and math.isfinite(value) and value >= 0
    )
