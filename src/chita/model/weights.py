"""The prunable weights of a model, as one flat vector w."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from chita.errors import PATTERNS, ChitaError, are_patterns, require
from chita.model.checks import check_writable
from chita.model.layers import Axes, axes_of, prunable_by_default
from chita.model.ties import check_apart, memory_of

Patterns = str | Sequence[str] | None


@dataclass(frozen=True)
class Weight:
    """One prunable parameter, which has the entries [start, stop) of the flat vector."""

    name: str
    parameter: nn.Parameter
    start: int
    stop: int

    @property
    def span(self) -> slice:
        return slice(self.start, self.stop)


class Weights:
    """The prunable weights of a model, in the order of `model.named_parameters()`.

    By default these are the weights of the layer kinds in `chita.model.layers`: of Linear and
    convolution layers, of attention, and of kinds that a user registers. A weight that several
    modules share, as one object or on the same memory, counts once.

    Args:
        model: any module; its parameters are referenced, not copied.
        include: glob pattern(s) of parameter names, instead of the default choice.
        exclude: glob pattern(s) of parameter names to leave out.

    Attributes:
        entries: one for each parameter.
        size: p, the number of weights.
        sizes: the number of weights of each parameter.
    """

    def __init__(
        self, model: nn.Module, include: Patterns = None, exclude: Patterns = None
    ) -> None:
        chosen = choose_parameters(model, include, exclude)
        check_apart(chosen, model)
        self._hold(chosen)

    def _hold(self, chosen: Mapping[str, nn.Parameter]) -> None:
        _check_same_kind(chosen)
        self.entries: tuple[Weight, ...] = tuple(_lay_out(chosen))
        self.size: int = self.entries[-1].stop
        self.sizes: tuple[int, ...] = tuple(w.stop - w.start for w in self.entries)
        self.device: torch.device = self.entries[0].parameter.device
        self.dtype: torch.dtype = self.entries[0].parameter.dtype

    def __iter__(self) -> Iterator[Weight]:
        return iter(self.entries)

    def without(self, names: Iterable[str]) -> Weights:
        """Return the prunable weights without those of some names; at least one must remain."""
        left_out = set(names)
        return self.only(w.name for w in self if w.name not in left_out)

    def only(self, names: Iterable[str]) -> Weights:
        """Return the prunable weights of some names, at least one."""
        wanted = set(names)
        other = copy.copy(self)
        other._hold({w.name: w.parameter for w in self if w.name in wanted})
        return other

    def vector(self) -> Tensor:
        """Return a copy of the weights as one vector, (p,)."""
        return torch.cat([weight.parameter.detach().reshape(-1) for weight in self])

    @torch.no_grad()
    def assign(self, vector: Tensor) -> None:
        """Write the vector, (p,), into the model's parameters, in place."""
        for weight in self:
            weight.parameter.copy_(vector[weight.span].view_as(weight.parameter))

    def replace(self, vector: Tensor) -> None:
        """Write the vector, (p,); if interrupted, restore the old weights."""
        before = self.vector()
        try:
            self.assign(vector + 0.0)  # without -0.0, which a packed file would store
        except BaseException:
            self.assign(before)
            raise

    @contextmanager
    def temporarily(self, vector: Tensor) -> Iterator[None]:
        """Write the vector, (p,), and restore the old weights at the end of the context."""
        before = self.vector()
        try:
            self.assign(vector)
            yield
        finally:
            self.assign(before)

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """Divide a vector, (p,), into one tensor per parameter, by name."""
        return {w.name: vector[w.span].view(w.parameter.shape) for w in self}


def weight_axes(model: nn.Module, weights: Weights) -> dict[str, Axes]:
    """Return the axes of each weight of a model, by name."""
    owners = {
        id(parameter): (module, name)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
    }
    return {weight.name: axes_of(*owners[id(weight.parameter)]) for weight in weights}


def choose_parameters(
    model: nn.Module, include: Patterns = None, exclude: Patterns = None
) -> dict[str, nn.Parameter]:
    """Return the prunable parameters of a model by name, as `Weights` describes; at least one."""
    for argument, given in (("include", include), ("exclude", exclude)):
        require(argument, given, are_patterns, PATTERNS)
    chosen = _choose(model, _as_tuple(include), _as_tuple(exclude))
    if not chosen:
        raise ChitaError(_nothing_chosen(model, include, exclude))
    return chosen


def _as_tuple(patterns: Patterns) -> tuple[str, ...] | None:
    if patterns is None:
        return None
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _choose(
    model: nn.Module, include: tuple[str, ...] | None, exclude: tuple[str, ...] | None
) -> dict[str, nn.Parameter]:
    """Return the chosen parameters by their first names; every pattern must match a name."""
    everything = dict(model.named_parameters(remove_duplicate=False))
    for argument, patterns in (("include", include), ("exclude", exclude)):
        for pattern in patterns or ():
            if not any(fnmatchcase(name, pattern) for name in everything):
                known = ", ".join(list(everything)[:8]) or "none"
                raise ChitaError(
                    f"{argument}={pattern!r} matches no parameter; the names are {known}"
                    + (", ..." if len(everything) > 8 else "")
                )
    by_default = set() if include is not None else set(map(memory_of, prunable_by_default(model)))

    def wanted(names: Iterable[str], parameter: nn.Parameter) -> bool:
        kept = (
            memory_of(parameter) in by_default
            if include is None
            else any(fnmatchcase(name, p) for name in names for p in include)
        )
        return kept and not any(fnmatchcase(name, p) for name in names for p in exclude or ())

    names_of: dict[object, list[str]] = {}
    for name, parameter in everything.items():
        names_of.setdefault(memory_of(parameter), []).append(name)
    return {
        names[0]: everything[names[0]]
        for names in names_of.values()
        if wanted(names, everything[names[0]]) and _has_entries(everything[names[0]])
    }


def _has_entries(parameter: nn.Parameter) -> bool:
    """Return whether a parameter has weights: a layer with no inputs or outputs has none."""
    return is_lazy(parameter) or parameter.numel() > 0


def _nothing_chosen(model: nn.Module, include: Patterns, exclude: Patterns) -> str:
    """Return the message for a choice of no parameters: the patterns or the model cause it."""
    given = f"include={include!r} and exclude={exclude!r}"
    if include is not None or any(True for _ in prunable_by_default(model)):
        return (
            f"{given} leave no prunable weights; include more parameters that are not empty, or "
            "exclude fewer"
        )
    return (
        f"the model has no prunable weights for {given}: none of its layers is a Linear, "
        "convolution, attention or registered layer with parameters; choose parameters by "
        "include=, or register the class of its layers by chita.register_layer"
    )


def _check_same_kind(chosen: Mapping[str, nn.Parameter]) -> None:
    for name, parameter in chosen.items():
        if not parameter.is_floating_point():
            raise ChitaError(
                f"{name!r} holds {parameter.dtype}: only floating-point weights can be pruned; "
                f"leave it out with exclude={name!r}"
            )
        check_writable(name, parameter)
    devices = {str(parameter.device): name for name, parameter in chosen.items()}
    if len(devices) > 1:
        where = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise ChitaError(f"the model's weights are on several devices ({where}); move it to one")
    dtypes = {str(parameter.dtype): name for name, parameter in chosen.items()}
    if len(dtypes) > 1:
        which = ", ".join(f"{name!r} is {dtype}" for dtype, name in dtypes.items())
        raise ChitaError(f"the weights have several types ({which}); convert the model to one")


def _lay_out(chosen: Mapping[str, nn.Parameter]) -> Iterator[Weight]:
    start = 0
    for name, parameter in chosen.items():
        yield Weight(name, parameter, start, start + parameter.numel())
        start += parameter.numel()


def check_finite(weights: Weights) -> None:
    """Raise a ChitaError if a prunable weight is NaN or infinite."""
    for weight in weights:
        if not bool(weight.parameter.isfinite().all()):
            raise ChitaError(
                f"{weight.name!r} holds NaN or infinite weights; the model must be trained"
            )
