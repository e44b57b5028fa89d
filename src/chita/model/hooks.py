"""Sees every call of the modules that own prunable weights, with inputs and output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from chita.model.batch import tensors_of
from chita.model.weights import Weight


class NotSeparableError(Exception):
    """The rows cannot be told apart in a batched pass; plain autograd has to do it."""


@dataclass(frozen=True)
class Owner:
    """A module and those prunable weights it holds itself, under its own names for them."""

    module: nn.Module
    owned: dict[str, Weight]


@dataclass(frozen=True)
class Call:
    """One call of an owner in the forward pass.

    Attributes:
        owner: the module called.
        args: its arguments.
        keywords: its keyword arguments.
        output: the place of its output in autograd's graph, which later in-place operations on
            the output do not move.
        shape: of the output.
        versions: of the tensors among the arguments, to notice in-place changes.
    """

    owner: Owner
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    output: GradientEdge
    shape: torch.Size
    versions: list[int]

    @property
    def input(self) -> Tensor:
        """The one input of a Linear or convolution layer."""
        tensor: Tensor = self.args[0] if self.args else self.keywords["input"]
        return tensor

    def check_unchanged(self) -> None:
        """The arguments must still be what the module saw."""
        if self.versions != _versions(self.args, self.keywords):
            raise NotSeparableError(
                f"an input of {type(self.owner.module).__name__} was changed in place"
            )


def owners(model: nn.Module, weights: Iterable[Weight]) -> list[Owner]:
    """The modules that hold one of the weights; one that is shared has several."""
    by_identity = {id(weight.parameter): weight for weight in weights}
    found = []
    for module in model.modules():
        held = module.named_parameters(recurse=False)
        owned = {name: by_identity[id(p)] for name, p in held if id(p) in by_identity}
        if owned:
            found.append(Owner(module, owned))
    return found


@contextmanager
def captured(found: list[Owner]) -> Iterator[list[Call]]:
    """The list that the calls of the owners are noted in while the context lasts."""
    calls: list[Call] = []

    def watch(owner: Owner) -> Any:
        def note(
            _: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], output: Any
        ) -> None:
            if not isinstance(output, Tensor) or not output.requires_grad:
                raise NotSeparableError(
                    f"{type(owner.module).__name__} does not return one differentiable tensor"
                )
            edge = get_gradient_edge(_origin(output))
            versions = _versions(args, keywords)
            calls.append(Call(owner, args, keywords, edge, output.shape, versions))

        return owner.module.register_forward_hook(note, with_kwargs=True)

    handles = [watch(owner) for owner in found]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _origin(output: Tensor) -> Tensor:
    """The output or, if it only shows that in another shape, what is behind it.

    An in-place operation on a view goes past the view in autograd's graph: Linear's output has
    one for each input of more than two dimensions.
    """
    base = output._base
    if base is None or base.numel() != output.numel():
        return output
    return base if base.is_contiguous() and output.is_contiguous() else output


def _versions(args: tuple[Any, ...], keywords: dict[str, Any]) -> list[int]:
    return [tensor._version for tensor in tensors_of((args, keywords))]
