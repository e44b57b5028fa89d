"""PruneConfig: everything that decides how a network is pruned, checked before any work starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

from chita.errors import (
    ChitaError,
    are_patterns,
    are_shares,
    is_count,
    is_flag,
    is_natural,
    is_not_negative,
    is_percentage,
    is_seed,
    is_share,
    require,
)
from chita.methods import Method, get_method, methods_where
from chita.pruning.allocation import GLOBAL, RULES
from chita.pruning.auto.metrics import METRICS
from chita.pruning.auto.search import Forms
from chita.pruning.floor import Floor
from chita.pruning.schedule import sparsities
from chita.solver.constraints.pattern import NM, Pattern, parse_pattern
from chita.solver.matrix.memory import parse_bytes
from chita.solver.options import Options

Ridge = float | Literal["auto"]

SCHEDULE = "polynomial"
BATCH = 16  # m, unless asked for: that of the paper's MobileNetV1
AUTO = "auto"
TRIED_METRICS = ("plain", "fisher", "lamp")  # by metric="auto", the paper's first
BLOCK = 2000  # the size of the blocks that method="auto" may use, as the paper's
# Without blocks the rows of A say little about each weight where they are so much fewer; with fewer
# weights than this, blocks are not worth a trial.
WHOLE_AT_MOST = 1000  # weights for each row
BLOCKS_FROM = 100_000  # weights
LOSSES = (None, "distill", "distill-mse")  # beside functions, which are no data
STORAGE = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class PruneConfig:
    """The arguments of `chita.prune` that are data; see there for what they mean."""

    sparsity: float
    loss: str | None = None
    method: str = AUTO
    solver: str | None = None
    samples: int | None = None
    batch: int | None = None
    ridge: Ridge = "auto"
    first_order: bool | None = None
    stages: int | None = None
    schedule: str | None = None
    start: float = 0.2
    hold: float = 0.0
    iterations: int | None = None
    continuation: int = 0
    block_size: int | None = None
    block_sweeps: int = 0
    metric: str | None = None
    drop_dead: bool | None = None
    max_loss_increase: float | None = None
    min_accuracy: float | None = None
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
        require("sparsity", self.sparsity, is_share, "a number in [0, 1)")
        for name in ("batch", "samples", "stages", "block_size"):
            value = getattr(self, name)
            if value is not None:
                require(name, value, is_count, "an integer of at least 1")
        if self.iterations is not None:
            require("iterations", self.iterations, is_natural, "an integer of at least 0")
        require("continuation", self.continuation, is_natural, "an integer of at least 0")
        require("block_sweeps", self.block_sweeps, is_natural, "an integer of at least 0")
        require("seed", self.seed, is_seed, "an integer from 0 to 2**64 - 1")
        require("start", self.start, is_share, "a number in [0, 1)")
        require("hold", self.hold, is_share, "a number in [0, 1)")
        for name in ("include", "exclude"):
            what = "a glob pattern of parameter names, or several"
            require(name, getattr(self, name), are_patterns, what)
        check_loss(self.loss)
        self._check_guard()
        self._check_drop()
        require("storage", self.storage, STORAGE.__contains__, f"one of {list(STORAGE)}")
        require("ridge", self.ridge, _is_ridge, "'auto' or a finite number of at least 0")
        self._check_allocation()
        if self.pattern is not None:
            self._check_pattern(parse_pattern(self.pattern))
        elif self.strict:
            raise ChitaError(
                "strict=True is for weights that a pattern does not divide, and there is no "
                "pattern: give one, such as '2:4' or '4x1', or leave out strict"
            )
        self._make_plain()
        self._check_sweeps(self.resolve_method())
        self.plan()
        if self.memory is not None:
            parse_bytes("memory", self.memory)

    def _check_guard(self) -> None:
        known = (None, AUTO, *METRICS)
        require("metric", self.metric, known.__contains__, f"one of {list(known[1:])}")
        gradients = self.resolve_method().curvature.uses_gradients
        if self.metric not in (None, "plain") and not gradients:
            raise ChitaError(
                f"metric={self.metric!r} needs gradients, which method {self.method!r} does not "
                f"use; {methods_where(lambda method: method.curvature.uses_gradients)} do"
            )
        for name in ("max_loss_increase", "min_accuracy"):
            value = getattr(self, name)
            if value is None:
                continue
            if name == "min_accuracy":
                require(name, value, is_percentage, "in percent: above 1, and at most 100")
            else:
                require(name, value, is_not_negative, "a finite number of at least 0")
            if not self.guarded:
                raise ChitaError(f"{name} is for method='auto', got method={self.method!r}")
        if self.min_accuracy is not None and self.loss is not None:
            raise ChitaError(
                f"min_accuracy needs labels, which loss={self.loss!r} does not look at; give "
                "max_loss_increase, the most that it may diverge from the dense network"
            )

    def _check_drop(self) -> None:
        require("drop_dead", self.drop_dead, is_flag, "True, False or None")
        if self.drop_dead and not self.resolve_method().curvature.uses_gradients:
            raise ChitaError(
                f"drop_dead=True needs gradients, which method {self.method!r} does not use; "
                f"{methods_where(lambda method: method.curvature.uses_gradients)} do"
            )

    def _check_allocation(self) -> None:
        what = "a dict of glob patterns of parameter names to sparsities in [0, 1)"
        if isinstance(self.allocation, str):
            require("allocation", self.allocation, RULES.__contains__, f"one of {list(RULES)}")
        else:
            require("allocation", self.allocation, are_shares, f"one of {list(RULES)}, or {what}")
        for name in ("at_least", "at_most"):
            require(name, getattr(self, name) or {}, are_shares, what)
        limited = self.allocation != GLOBAL or self.at_least or self.at_most
        if limited and not self.resolve_method().constrained:
            raise ChitaError(
                f"method {self.method!r} cannot keep to allocation, at_least or at_most; "
                f"{methods_where(lambda method: method.constrained)} can"
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
            if self.floor is None:
                raise ChitaError(
                    f"sparsity must be at most {pattern.sparsity:.4g} for "
                    f"pattern={self.pattern!r}, got {self.sparsity!r}"
                )
            object.__setattr__(self, "sparsity", pattern.sparsity)  # the most that is tried
        if not self.resolve_method().constrained:
            raise ChitaError(
                f"method {self.method!r} knows no patterns, got pattern={self.pattern!r}; "
                f"{methods_where(lambda method: method.constrained)} do"
            )

    def _check_sweeps(self, method: Method) -> None:
        if self.block_sweeps and (self.block_size is None or not method.streams):
            raise ChitaError(
                f"block_sweeps={self.block_sweeps!r} needs a block_size and one of the methods "
                f"{methods_where(lambda method: method.streams)}, got "
                f"block_size={self.block_size!r} and method={self.method!r}"
            )

    def resolve_method(self) -> Method:
        """The method that the configuration names."""
        return get_method(self.method, self.solver)

    def resolve_options(self) -> Options:
        """How the method's algorithm runs."""
        options = self.resolve_method().options
        options = replace(options, continuation=self.continuation, seed=self.seed)
        return options if self.iterations is None else replace(options, iterations=self.iterations)

    @property
    def drops_dead(self) -> bool:
        """Whether the weights of dead columns are removed first, as asked for or by the method."""
        return self.resolve_method().drops_dead if self.drop_dead is None else self.drop_dead

    @property
    def guarded(self) -> bool:
        """Whether each stage is chosen among candidates by the held-out loss."""
        return self.method == AUTO

    @property
    def held_out_for(self) -> str | None:
        """What samples are held out for; None if for nothing."""
        if self.guarded:
            return "method='auto'"
        if self.metric == AUTO:
            return "metric='auto'"
        return "ridge='auto'" if self.ridge == AUTO else None

    @property
    def floor(self) -> Floor | None:
        """What the network must keep, if anything was asked for."""
        if self.max_loss_increase is None and self.min_accuracy is None:
            return None
        return Floor(self.max_loss_increase, self.min_accuracy)

    def forms(self, n: int, p: int) -> Forms:
        """The forms of a stage's problem to choose from: one, where nothing is left open.

        Args:
            n: the rows of A.
            p: the weights.
        """
        metric = self.metric or (AUTO if self.guarded else "plain")
        blocks: tuple[tuple[int | None, int], ...] = ((self.block_size, self.block_sweeps),)
        if self.guarded and self.block_size is None and p >= BLOCKS_FROM:
            whole = () if p > WHOLE_AT_MOST * n else ((None, 0),)
            # In a pattern blocks are solved one by one, which takes long: only where it must be.
            cut = ((BLOCK, 0), (BLOCK, 1)) if self.pattern is None or not whole else ()
            blocks = (*whole, *cut)
        first_order: tuple[bool, ...] = (self.first_order is not False,)
        if self.guarded and self.first_order is None:
            first_order = (True, False)
        return Forms(TRIED_METRICS if metric == AUTO else (metric,), blocks, first_order)

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


def check_loss(loss: Any) -> None:
    """Whether this is the name of a loss, or None."""
    what = f"a function of outputs and targets, or one of {list(LOSSES[1:])}"
    require("loss", loss, LOSSES.__contains__, what)


def _is_ridge(value: Any) -> bool:
    return (isinstance(value, str) and value == AUTO) or is_not_negative(value)
