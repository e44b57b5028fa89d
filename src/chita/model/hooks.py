"""Hooks: record or change the calls of some modules during forward passes.

`watching` is the one place where chita registers forward hooks for a limited time. `captured` uses
it to record the calls whose per-sample gradients are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from chita.model.samples.batch import copied, tensors_of
from chita.model.weights import Weight

Args = tuple[Any, ...]
Keywords = dict[str, Any]

# (module, arguments, keyword arguments, output) -> a replacement of the output, or None.
Hook = Callable[[nn.Module, Args, Keywords, Any], Any]


@contextmanager
def watching(modules: Iterable[nn.Module], hook: Hook) -> Iterator[None]:
    """Call `hook` after each call of one of the modules while the context lasts."""
    handles = [module.register_forward_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def returning(modules: Iterable[nn.Module], output: Any) -> Iterator[None]:
    """Let each of the modules return a copy of `output`, without any work, in the context.

    Args:
        modules: the modules.
        output: a nest of tensors. Each call returns a copy, which the caller may change in place.
    """

    def forward(*args: Any, **keywords: Any) -> Any:
        return copied(output)

    replaced = [(module, vars(module).get("forward")) for module in modules]
    try:
        for module, _ in replaced:
            module.forward = forward
        yield
    finally:
        for module, own in replaced:
            vars(module).pop("forward", None)
            if own is not None:  # another library has replaced it before
                module.forward = own


def first_input(args: Args, keywords: Keywords) -> Tensor:
    """Return the input of a layer that has one input, by position or by keyword."""
    tensor: Tensor = args[0] if args else next(iter(keywords.values()))
    return tensor


class NotSeparableError(Exception):
    """The samples of a batched pass cannot be separated; plain autograd has to be used."""


@dataclass(frozen=True)
class Owner:
    """A module and the prunable weights that it holds itself, by their names in the module."""

    module: nn.Module
    owned: dict[str, Weight]


def owners(model: nn.Module, weights: Iterable[Weight]) -> list[Owner]:
    """Return the modules that hold one of the weights; a shared weight has several owners."""
    by_identity = {id(weight.parameter): weight for weight in weights}
    found = []
    for module in model.modules():
        held = module.named_parameters(recurse=False)
        owned = {name: by_identity[id(p)] for name, p in held if id(p) in by_identity}
        if owned:
            found.append(Owner(module, owned))
    return found


@dataclass(frozen=True)
class Call:
    """One call of an owner in the forward pass.

    Attributes:
        owner: the called module and its prunable weights.
        args: its arguments.
        keywords: its keyword arguments.
        output: the node of its output in autograd's graph, which later in-place operations on the
            output do not change.
        shape: the shape of the output.
        versions: the versions of the tensors among the arguments, to detect in-place changes.
    """

    owner: Owner
    args: Args
    keywords: Keywords
    output: GradientEdge
    shape: torch.Size
    versions: list[int]

    @property
    def input(self) -> Tensor:
        """The input of a layer that has one input."""
        return first_input(self.args, self.keywords)

    def check_unchanged(self) -> None:
        """Raise a NotSeparableError if an argument was changed in place after the call."""
        if self.versions != _versions(self.args, self.keywords):
            raise NotSeparableError(
                f"an input of {type(self.owner.module).__name__} was changed in place"
            )


@contextmanager
def captured(found: list[Owner]) -> Iterator[list[Call]]:
    """Record the calls of the owners, while the context lasts, in the list that is yielded."""
    calls: list[Call] = []
    by_module = {owner.module: owner for owner in found}

    def record(module: nn.Module, args: Args, keywords: Keywords, output: Any) -> None:
        if not isinstance(output, Tensor) or not output.requires_grad:
            raise NotSeparableError(
                f"{type(module).__name__} does not return one differentiable tensor"
            )
        edge = get_gradient_edge(_origin(output))
        versions = _versions(args, keywords)
        calls.append(Call(by_module[module], args, keywords, edge, output.shape, versions))

    with watching(by_module, record):
        yield calls


def _origin(output: Tensor) -> Tensor:
    """Return the output, or the tensor that it is a view of in another shape.

    An in-place operation on a view bypasses the view in autograd's graph. Linear returns a view
    if its input has more than two dimensions.
    """
    base = output._base
    if base is None or base.numel() != output.numel():
        return output
    return base if base.is_contiguous() and output.is_contiguous() else output


def _versions(args: Args, keywords: Keywords) -> list[int]:
    return [tensor._version for tensor in tensors_of((args, keywords))]
