"""The registry of rules: how each type of layer makes rows of A from what a call saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from chita.model.hooks import Call


@dataclass(frozen=True)
class Piece:
    """Gradients of one run of a parameter's entries.

    Attributes:
        name: of the parameter in its module.
        start: the first entry, counted in the flattened parameter.
        columns: (entries, R), row r of A in column r.
    """

    name: str
    start: int
    columns: Tensor


# (the call, the gradient of the losses by its output, R) -> the pieces of its parameters.
Rule = Callable[[Call, Tensor, int], Iterator[Piece]]

_RULES: dict[object, Rule] = {}


def rule(kind: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Registers the rule of a layer type."""

    def register(function: Rule) -> Rule:
        _RULES[kind.forward] = function
        return function

    return register


def rule_for(module: nn.Module) -> Rule | None:
    """The rule of a module. A subclass with a forward pass of its own has none."""
    return None if "forward" in vars(module) else _RULES.get(type(module).forward)


def by_row(tensor: Tensor, rows: int) -> Tensor:
    """Samples of shape (R * m, ...) as (R, m, ...)."""
    return tensor.reshape(rows, -1, *tensor.shape[1:])
