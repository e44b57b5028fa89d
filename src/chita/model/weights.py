"""The prunable weights of a model, as one flat vector w."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from chita.errors import ChitaError
from chita.model.layers import Axes, axes_of, prunable_by_default

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
    modules share counts once.

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
        chosen = _choose(model, _as_tuple(include), _as_tuple(exclude))
        if not chosen:
            raise ChitaError(_nothing_chosen(model, include, exclude))
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
        left = {w.name: w.parameter for w in self if w.name not in set(names)}
        other = copy.copy(self)
        other._hold(left)
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


@torch.no_grad()
def apply_masks(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Zero the weights of `model` where `masks` (parameter name -> bool tensor) are False.

    Every mask is checked before any weight is changed.
    """
    for parameter, mask in check_masks(model, masks):
        # A product would turn negative weights into -0.0, which a packed file would store.
        parameter.masked_fill_(~mask, 0.0)


def check_masks(model: nn.Module, masks: Mapping[str, Tensor]) -> list[tuple[nn.Parameter, Tensor]]:
    """Return parameters and their masks, on one device; raise a ChitaError if one does not fit."""
    check_module(model)
    if not isinstance(masks, Mapping):
        raise ChitaError(
            "masks must be a dict of parameter names to bool tensors, such as the .masks of a "
            f"PruneResult, got {type(masks).__name__}"
        )
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, mask in masks.items():
        if name not in parameters:
            raise ChitaError(f"masks name {name!r}, which is not a parameter of the model")
        _check_mask(name, mask, parameters[name].shape)
    return [(parameters[name], mask.to(parameters[name].device)) for name, mask in masks.items()]


def _check_mask(name: str, mask: Any, shape: torch.Size) -> None:
    got = type(mask).__name__
    if isinstance(mask, Tensor):
        if mask.dtype == torch.bool and mask.shape == shape:
            return
        got = f"{mask.dtype} of shape {tuple(mask.shape)}"
    raise ChitaError(
        f"the mask of {name!r} must be a bool tensor of shape {tuple(shape)}, got {got}"
    )


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
    by_default = {id(p) for p in prunable_by_default(model)} if include is None else set()

    def wanted(names: Iterable[str], parameter: nn.Parameter) -> bool:
        kept = (
            id(parameter) in by_default
            if include is None
            else any(fnmatchcase(name, p) for name in names for p in include)
        )
        return kept and not any(fnmatchcase(name, p) for name in names for p in exclude or ())

    names_of: dict[int, list[str]] = {}
    for name, parameter in everything.items():
        names_of.setdefault(id(parameter), []).append(name)
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if wanted(names_of[id(parameter)], parameter)
    }


def _nothing_chosen(model: nn.Module, include: Patterns, exclude: Patterns) -> str:
    """Return the message for a choice of no parameters: the patterns or the model cause it."""
    given = f"include={include!r} and exclude={exclude!r}"
    if include is not None or any(True for _ in prunable_by_default(model)):
        return f"{given} leave no prunable weights; include more parameters or exclude fewer"
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


def check_module(model: Any) -> None:
    """Raise a ChitaError unless `model` is a torch.nn.Module."""
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ChitaError(f"model must be a torch.nn.Module, got {model!r:.80} of type {kind}")


def check_model(model: nn.Module) -> None:
    """Raise a ChitaError unless the parameters are on one device and all tensors have values."""
    check_module(model)
    tensors = dict(chain(model.named_parameters(), model.named_buffers()))
    devices = {str(tensor.device): name for name, tensor in model.named_parameters()}
    if len(devices) > 1:
        where = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise ChitaError(f"the model is on several devices ({where}); move it to one")
    for name, tensor in tensors.items():
        if is_lazy(tensor) or tensor.is_meta:
            raise ChitaError(f"{name!r} holds no values yet; load or initialise the model first")
        if isinstance(tensor, nn.Parameter) and tensor.is_inference():
            raise ChitaError(
                f"{name!r} was made under torch.inference_mode() and cannot be changed: make "
                "the model outside of it, or prune a copy.deepcopy of it"
            )


def check_finite(weights: Weights) -> None:
    """Raise a ChitaError if a prunable weight is NaN or infinite."""
    for weight in weights:
        if not bool(weight.parameter.isfinite().all()):
            raise ChitaError(
                f"{weight.name!r} holds NaN or infinite weights; the model must be trained"
            )
