"""The forms that a layer may take, by name: each gives a module, or None where it does not fit."""

from __future__ import annotations

import copy
from collections.abc import Callable

from torch import nn

from chita.fast.compact import Compact
from chita.fast.semi_structured import SemiStructured
from chita.fast.sparse import SparseProduct, SparseSums

Form = Callable[[nn.Module], nn.Module | None]

FORMS: dict[str, Form] = {
    "compact": Compact.of,
    "csr": SparseProduct.of,
    "sums": SparseSums.of,
    "2:4": SemiStructured.of,
}


def everywhere(model: nn.Module, form: Form) -> nn.Module | None:
    """A copy of the model in which each layer that can has taken the form; None if none can."""
    changed, found = copy.deepcopy(model), False
    for layer in list(changed.modules()):
        made = form(layer)
        if made is not None:
            changed, found = swap(changed, layer, made), True
    return changed if found else None


def swap(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """Put `new` in the place of `old`, under all its names; gives the model, or `new` for it."""
    if model is old:
        return new
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, new)
    return model
