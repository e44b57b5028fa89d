"""PruneConfig: the options of a pruning run, checked before any work starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from chita.errors import ChitaError
from chita.methods import Method, get_method, methods_where
from chita.model.named_losses import DISTILLED
from chita.pruning.allocation import GLOBAL
from chita.pruning.floor import Floor, highest_sparsity
from chita.pruning.options.declaration import add_options, check_names, check_values, options_of
from chita.pruning.options.method import BALANCED, PruneOptions
from chita.pruning.options.run import RunOptions
from chita.pruning.options.support import SupportOptions
from chita.pruning.options.text import AUTO
from chita.pruning.schedule import sparsities
from chita.solver.constraints.pattern import NM, Pattern, parse_pattern, read_sparsity
from chita.solver.matrix.memory import parse_bytes
from chita.solver.options import Options

SCHEDULE = "polynomial"


@dataclass(frozen=True)
class PruneConfig(RunOptions, SupportOptions, PruneOptions):
    """The options of `chita.prune`, checked when the object is created.

    Pass it to `chita.prune(model, batches, config)`; `dataclasses.replace` returns a copy with
    other values, and `dataclasses.asdict` the values by name.

    Raises:
        ChitaError: a value is wrong, or two options do not fit together.
    """

    def __post_init__(self) -> None:
        check_values(self)
        self._check_gradients()
        self._check_share()
        self._check_floor()
        self._check_allocation()
        if self.pattern is not None:
            self._check_pattern(parse_pattern(self.pattern))
        elif self.strict:
            raise ChitaError(
                "strict=True requires a pattern, such as pattern='2:4' or pattern='4x1'; give a "
                "pattern, or leave out strict"
            )
        self._check_budget()
        self._make_plain()
        self._check_sweeps()
        self.plan()

    def _check_gradients(self) -> None:
        if self.resolve_method().measures_weights:
            return
        for name, without in (("metric", "plain"), ("drop_dead", False)):
            value = getattr(self, name)
            if value not in (None, without):
                raise ChitaError(
                    f"{name}={value!r} needs gradients, which method {self.method!r} does not use; "
                    f"{methods_where(lambda method: method.measures_weights)} do"
                )

    def _check_share(self) -> None:
        if self.layer_share != AUTO and not self.resolve_method().adds_inputs:
            raise ChitaError(
                f"layer_share={self.layer_share!r} applies to "
                f"{methods_where(lambda method: method.adds_inputs)} only, got "
                f"method={self.method!r}"
            )

    def _check_floor(self) -> None:
        for name in ("max_loss_increase", "min_accuracy"):
            if getattr(self, name) is not None and self.method != AUTO:
                raise ChitaError(f"{name} requires method='auto', got method={self.method!r}")
        if self.min_accuracy is not None and self.distills:
            raise ChitaError(
                f"min_accuracy needs labels, which loss={self.loss!r} does not use; limit the "
                "divergence from the dense network by max_loss_increase instead"
            )

    def _check_budget(self) -> None:
        if self.budget != BALANCED and not self.recovers:
            raise ChitaError(
                f"budget={self.budget!r} limits the training of recover=True, which this run does "
                "not have; leave it out"
            )

    def _limits_layers(self) -> bool:
        return bool(self.allocation != GLOBAL or self.at_least or self.at_most)

    def _check_allocation(self) -> None:
        if self._limits_layers() and not self.resolve_method().constrained:
            raise ChitaError(
                f"method {self.method!r} does not support allocation, at_least or at_most; "
                f"{methods_where(lambda method: method.constrained)} do"
            )

    def _make_plain(self) -> None:
        """Convert NumPy numbers to Python's, which JSON and torch generators require."""
        for name, value in vars(self).items():
            if isinstance(value, Integral) and not isinstance(value, bool):
                object.__setattr__(self, name, int(value))
            elif isinstance(value, Real) and not isinstance(value, bool):
                object.__setattr__(self, name, float(value))
            elif isinstance(value, Mapping):
                object.__setattr__(self, name, {key: float(value[key]) for key in value})

    def _check_pattern(self, pattern: Pattern) -> None:
        if self._limits_layers():
            raise ChitaError(
                f"pattern={self.pattern!r} determines what each layer keeps and cannot be combined "
                "with allocation, at_least or at_most; keep layers dense by exclude"
            )
        if isinstance(pattern, NM) and self.sparsity > pattern.sparsity:
            if self.floor is None:
                raise ChitaError(
                    f"sparsity must be at most {pattern.sparsity:.4g} for "
                    f"pattern={self.pattern!r}, got {self.sparsity!r}"
                )
            object.__setattr__(self, "sparsity", pattern.sparsity)  # the highest to try
        if not self.resolve_method().constrained:
            raise ChitaError(
                f"method {self.method!r} does not support patterns, got pattern={self.pattern!r}; "
                f"{methods_where(lambda method: method.constrained)} do"
            )

    def _check_sweeps(self) -> None:
        couples = self.resolve_method().shares_columns
        if self.block_sweeps and (self.block_size is None or not couples):
            raise ChitaError(
                f"block_sweeps={self.block_sweeps!r} needs a block_size and one of the methods "
                f"{methods_where(lambda method: method.shares_columns)}, got "
                f"block_size={self.block_size!r} and method={self.method!r}"
            )

    def resolve_method(self) -> Method:
        """Return the method that the configuration names."""
        return get_method(self.method, self.solver)

    def resolve_options(self) -> Options:
        """Return the options of the method's algorithm."""
        options = self.resolve_method().options
        options = replace(options, continuation=self.continuation, seed=self.seed)
        return options if self.iterations is None else replace(options, iterations=self.iterations)

    @property
    def given_ridge(self) -> float | None:
        """Lambda: the given one or the method's; None if held-out samples decide."""
        return self.resolve_method().ridge if self.ridge == AUTO else float(self.ridge)

    @property
    def searches_share(self) -> bool:
        """Whether held-out samples choose the share of the layers' inputs."""
        return self.layer_share == AUTO and self.resolve_method().adds_inputs

    @property
    def drops_dead(self) -> bool:
        """Whether the weights of dead columns are removed first: `drop_dead`, or the method's."""
        return self.resolve_method().drops_dead if self.drop_dead is None else self.drop_dead

    @property
    def floor(self) -> Floor | None:
        """The bounds on the loss and the accuracy; None if neither is given."""
        if self.max_loss_increase is None and self.min_accuracy is None:
            return None
        return Floor(self.max_loss_increase, self.min_accuracy)

    @property
    def distills(self) -> bool:
        """Whether the loss compares with the outputs of the dense network, without labels."""
        return self.loss in DISTILLED

    @property
    def reads_samples(self) -> bool:
        """Whether the run uses the calibration data."""
        return self.recovers or self.resolve_method().curvature.reads_samples

    @property
    def recovers(self) -> bool:
        """Whether every stage is followed by training: `recover`, or for the method auto."""
        return self.method == AUTO if self.recover is None else self.recover

    @property
    def memory_bytes(self) -> int | None:
        """`memory` in bytes."""
        return None if self.memory is None else parse_bytes("memory", self.memory)

    def plan(self) -> list[float]:
        """Return the sparsity of each stage."""
        return sparsities(
            self.schedule or SCHEDULE,
            float(self.sparsity),
            stages=self.stages or self.resolve_method().stages,
            start=self.start,
            hold=self.hold,
        )


PruneConfig.__doc__ = add_options(PruneConfig.__doc__, PruneConfig, "Attributes")


def resolve_config(config: PruneConfig | None, overrides: Mapping[str, Any]) -> PruneConfig:
    """Return the configuration with overrides, and with a sparsity if only a floor is given.

    Args:
        config: the values of the options that `overrides` does not name; the defaults if None.
        overrides: values by the names of the options; a sparsity may be a pattern such as "2:4",
            and may be left out if `max_loss_increase` or `min_accuracy` is given.

    Raises:
        ChitaError: a name is unknown, or a value is wrong.
    """
    if config is not None and not isinstance(config, PruneConfig):
        raise ChitaError(f"config must be a PruneConfig or None, got {type(config).__name__}")
    kind = PruneConfig if config is None else type(config)
    check_names(overrides, options_of(kind), "chita.prune")
    given = {**({} if config is None else vars(config)), **overrides}
    target = given.get("sparsity")
    if target is None:
        floor = Floor(given.get("max_loss_increase"), given.get("min_accuracy"))
        target = highest_sparsity(floor)
    given["sparsity"] = target
    if isinstance(target, str):
        given["sparsity"], given["pattern"] = read_sparsity(target, given.get("pattern"))
    return kind(**given)


def kept_weights(p: int, sparsity: float) -> int:
    """Return k = floor((1 - sparsity) p), computed in floating point, where 1 - 0.9 < 0.1.

    The paper counts in the same way: its figures for magnitude pruning are reproduced exactly.
    """
    return math.floor((1 - sparsity) * p)
