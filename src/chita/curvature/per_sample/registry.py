"""The registry of per-sample gradient rules, by class of layer or by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import overload

from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.hooks import Call
from chita.model.layers import check_layer_class, is_class


@dataclass(frozen=True)
class Piece:
    """Gradients of consecutive entries of a parameter.

    Attributes:
        name: the name of the parameter in its module.
        start: the first entry, in the flattened parameter.
        columns: (entries, R); column r belongs to mini-batch r, a row of A.
    """

    name: str
    start: int
    columns: Tensor


# (call, gradient of the losses with respect to its output, R) -> pieces of its parameters.
Rule = Callable[[Call, Tensor, int], Iterator[Piece]]

PACKAGE = __name__.rpartition(".")[0]  # the package of the built-in rules
_RULES: dict[type[nn.Module] | str, Rule] = {}


@overload
def register_gradient_rule(layer: type[nn.Module] | str, rule: Rule) -> Rule: ...


@overload
def register_gradient_rule(
    layer: type[nn.Module] | str, rule: None = None
) -> Callable[[Rule], Rule]: ...


def register_gradient_rule(
    layer: type[nn.Module] | str, rule: Rule | None = None
) -> Rule | Callable[[Rule], Rule]:
    """Register the gradient rule of a layer; without `rule`, return a decorator.

    The rule also applies to subclasses that inherit the forward pass. It replaces an earlier rule
    of the same layer.

    Args:
        layer: a class of layers, or its name, such as "transformers.pytorch_utils.Conv1D", for a
            class that need not be imported.
        rule: a function of a call, the gradient of the losses with respect to the output of the
            call, (R * m, ...), and R. It yields `Piece`s that cover, for each of R mini-batches of
            m samples, the gradients of all parameters in `call.owner.owned`.
    """
    check_layer_class("layer", layer)
    if rule is None:
        return lambda function: register_gradient_rule(layer, function)
    if not callable(rule):
        raise ChitaError(f"rule must be a function, got {rule!r}")
    _RULES[layer] = rule
    return rule


def rule_for(module: nn.Module) -> Rule | None:
    """Return the rule of a module; None if none is registered for its forward pass."""
    if "forward" in vars(module):
        return None
    for base in type(module).__mro__:
        for layer, rule in _RULES.items():
            if is_class(base, layer):
                return rule
        if "forward" in vars(base):  # a forward pass that replaces the registered one
            return None
    return None


def is_built_in(rule: Rule) -> bool:
    """Return whether a rule is defined in chita itself."""
    return str(getattr(rule, "__module__", "")).startswith(f"{PACKAGE}.")


def by_row(tensor: Tensor, rows: int) -> Tensor:
    """Reshape samples (R * m, ...) to (R, m, ...)."""
    return tensor.reshape(rows, -1, *tensor.shape[1:])
