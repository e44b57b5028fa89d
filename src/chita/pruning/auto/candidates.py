"""Candidates: the ways to pose and solve the problem of a stage, among which a search chooses.

Candidates differ along axes: the metric, the first-order term, the blocks. An axis declares which
values to try, how a value changes the stage problem, and how the value is shown and stored. To add
an axis, write its class here and append an instance to `AXES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple

from chita.pruning.config import PruneConfig
from chita.pruning.options.text import AUTO
from chita.pruning.stage_problem import Formulation

SHARES = (0.5, 1.0, 0.75, 0.25, 0.0)  # t, for layer_share="auto"
TRIED_METRICS = ("plain", "fisher", "lamp")  # for metric="auto"; the paper's comes first
BLOCK = 2000  # the paper's block size
# A search tries blocks only for networks of at least this many weights.
BLOCKS_FROM = 100_000
# With more weights per row of A than this, A is too short to couple all columns: the search then
# tries blocks only.
WHOLE_AT_MOST = 1000


@dataclass(frozen=True)
class Axis(ABC):
    """A property of the stage problem in which candidates differ.

    Attributes:
        name: the key of a value in a stored candidate.
        default: the value of stored candidates that lack the key.
    """

    name: ClassVar[str]
    default: ClassVar[Any]

    @abstractmethod
    def values(self, config: PruneConfig, n: int, p: int) -> Sequence[Any]:
        """Return the values to try, the initial one first.

        Args:
            config: the options of the run.
            n: the rows of A.
            p: the prunable weights.
        """

    def reaches(self, value: Any, other: Any) -> bool:
        """Return whether a search compares a value with another one directly."""
        return bool(value != other)

    @abstractmethod
    def apply(self, formulation: Formulation, value: Any) -> Formulation:
        """Return the formulation changed to this value."""

    @abstractmethod
    def show(self, value: Any) -> str:
        """Return the value in words."""

    def to_dict(self, value: Any) -> dict[str, Any]:
        """Return the value by key, ready for JSON."""
        return {self.name: value}

    def from_dict(self, stored: Mapping[str, Any]) -> Any:
        """Return the value that `to_dict` stored."""
        return stored.get(self.name, self.default)


class MetricAxis(Axis):
    """The metric in which weights and displacements are measured (`stage_problem.py`)."""

    name, default = "metric", "plain"

    def values(self, config: PruneConfig, n: int, p: int) -> Sequence[str]:
        metric = config.metric or (AUTO if config.method == AUTO else "plain")
        return TRIED_METRICS if metric == AUTO else (metric,)

    def apply(self, formulation: Formulation, value: str) -> Formulation:
        return replace(formulation, metric=value)

    def show(self, value: str) -> str:
        return f"{value} metric"


class FirstOrderAxis(Axis):
    """Whether the local model of the loss has its first-order term."""

    name, default = "first_order", True

    def values(self, config: PruneConfig, n: int, p: int) -> Sequence[bool]:
        if config.method == AUTO and config.first_order is None:
            return (True, False)
        if config.resolve_method().adds_inputs:
            return (config.first_order is True,)
        return (config.first_order is not False,)

    def apply(self, formulation: Formulation, value: bool) -> Formulation:
        return replace(formulation, first_order=value)

    def show(self, value: bool) -> str:
        return f"{'with' if value else 'without'} the first-order term"


class Blocks(NamedTuple):
    """The block size, None for one problem over all columns, and the sweeps that couple blocks."""

    size: int | None
    sweeps: int


class BlocksAxis(Axis):
    """Blocks of columns (algorithm 6): none, independent ones, or coupled ones."""

    name, default = "blocks", Blocks(None, 0)

    def values(self, config: PruneConfig, n: int, p: int) -> Sequence[Blocks]:
        if config.method != AUTO or config.block_size is not None or p < BLOCKS_FROM:
            return (Blocks(config.block_size, config.block_sweeps),)
        whole = () if p > WHOLE_AT_MOST * n else (Blocks(None, 0),)
        if config.pattern is not None and whole:
            return whole  # under a pattern, blocks are solved one at a time, which is slow
        return (*whole, Blocks(BLOCK, 0), Blocks(BLOCK, 1))

    def reaches(self, value: Blocks, other: Blocks) -> bool:
        # Coupled blocks improve on independent ones, where these are better than none.
        return value != other and (not other.sweeps or value.size == other.size)

    def apply(self, formulation: Formulation, value: Blocks) -> Formulation:
        options = replace(formulation.options, block_sweeps=value.sweeps)
        return replace(formulation, block_size=value.size, options=options)

    def show(self, value: Blocks) -> str:
        if value.size is None:
            return "no blocks"
        return f"{'coupled ' if value.sweeps else ''}blocks of {value.size}"

    def to_dict(self, value: Blocks) -> dict[str, Any]:
        return {"block_size": value.size, "block_sweeps": value.sweeps}

    def from_dict(self, stored: Mapping[str, Any]) -> Blocks:
        return Blocks(stored.get("block_size"), stored.get("block_sweeps", 0))


class LayerShareAxis(Axis):
    """The share t of the layers' inputs, for methods that add gradients to them."""

    name, default = "layer_share", 1.0

    def values(self, config: PruneConfig, n: int, p: int) -> Sequence[float]:
        if config.searches_share:
            return SHARES if config.ridge != 0 else SHARES[:-1]  # gradients alone need a ridge
        return (self.default if config.layer_share == AUTO else float(config.layer_share),)

    def apply(self, formulation: Formulation, value: float) -> Formulation:
        return replace(formulation, layer_share=value)

    def show(self, value: float) -> str:
        return "" if value == self.default else f"t = {value:g}"


# The order in which a search goes through the axes.
AXES: tuple[Axis, ...] = (MetricAxis(), FirstOrderAxis(), BlocksAxis(), LayerShareAxis())


@dataclass(frozen=True)
class Candidate:
    """One way to pose and solve a stage problem.

    Attributes:
        axes: the axes along which candidates differ.
        values: the value on each axis.
    """

    axes: tuple[Axis, ...]
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return ", ".join(filter(None, (axis.show(value) for axis, value in self._pairs())))

    def apply(self, formulation: Formulation) -> Formulation:
        """Return the formulation with the values of this candidate."""
        for axis, value in self._pairs():
            formulation = axis.apply(formulation, value)
        return formulation

    def moved(self, axis: int, value: Any) -> Candidate:
        """Return the candidate with another value on the axis of this number."""
        return Candidate(self.axes, (*self.values[:axis], value, *self.values[axis + 1 :]))

    def to_dict(self) -> dict[str, Any]:
        """Return the values by key, ready for JSON."""
        return {
            key: stored
            for axis, value in self._pairs()
            for key, stored in axis.to_dict(value).items()
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Candidate:
        """Read the keys that `to_dict` wrote; other keys are ignored."""
        return cls(AXES, tuple(axis.from_dict(stored) for axis in AXES))

    def _pairs(self) -> list[tuple[Axis, Any]]:
        return list(zip(self.axes, self.values, strict=True))


@dataclass(frozen=True)
class Trial:
    """A candidate that was tried, and its held-out loss.

    Attributes:
        candidate: the candidate.
        ridge: lambda.
        step: the fraction of the displacement.
        loss: the mean held-out loss.
    """

    candidate: Candidate
    ridge: float
    step: float
    loss: float

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name."""
        found = {"ridge": self.ridge, "step": self.step, "loss": self.loss}
        return {**self.candidate.to_dict(), **found}


@dataclass(frozen=True)
class CandidateSpace:
    """The candidates of a run: every combination of the values on each axis.

    Attributes:
        axes: the axes.
        values: the values on each axis, the initial one first.
    """

    axes: tuple[Axis, ...]
    values: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, config: PruneConfig, n: int, p: int) -> CandidateSpace:
        """Return the candidates that the options leave open.

        Args:
            config: the options of the run.
            n: the rows of A.
            p: the prunable weights.
        """
        return cls(AXES, tuple(tuple(axis.values(config, n, p)) for axis in AXES))

    @property
    def first(self) -> Candidate:
        """The candidate where a search starts."""
        return Candidate(self.axes, tuple(values[0] for values in self.values))

    def all(self) -> list[Candidate]:
        """Return every candidate."""
        return [Candidate(self.axes, values) for values in product(*self.values)]

    def along(self, candidate: Candidate, axis: int) -> list[Candidate]:
        """Return the candidates that differ from this one on the axis of this number only, as far
        as they are compared with it."""
        own, reaches = candidate.values[axis], self.axes[axis].reaches
        return [candidate.moved(axis, value) for value in self.values[axis] if reaches(own, value)]

    def neighbours(self, candidate: Candidate) -> list[Candidate]:
        """Return the candidates that differ from this one on a single axis."""
        return [other for axis in range(len(self.axes)) for other in self.along(candidate, axis)]

    def with_one_block_size(self, formulation: Formulation) -> CandidateSpace:
        """Return the space without the values that change the block size of the first candidate.

        Args:
            formulation: the formulation that the candidates are applied to.
        """
        size = self.first.apply(formulation).block_size

        def keeps_size(axis: int, value: Any) -> bool:
            return self.first.moved(axis, value).apply(formulation).block_size == size

        return CandidateSpace(
            self.axes,
            tuple(
                tuple(value for value in values if keeps_size(axis, value))
                for axis, values in enumerate(self.values)
            ),
        )
